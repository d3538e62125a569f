"""Sandbox.list and its filters."""

from datetime import timedelta

import pytest
from e2b import SandboxQuery, SandboxState

from support.server import Server


@pytest.fixture
def own(request):
    """A metadata value that only this test uses."""
    return {"test": request.node.name}


def test_metadata_filters_match_all_pairs_exactly(sdk, own):
    tricky = own | {"a b": "c&d=é", "n": "1"}
    match = sdk.create(metadata=tricky)
    sdk.create(metadata=own | {"n": "2"})
    sdk.create()
    found = sdk.list_all(query=SandboxQuery(metadata=tricky))
    assert [each.sandbox_id for each in found] == [match.sandbox_id]
    assert found[0].metadata == tricky
    assert len(sdk.list_all(query=SandboxQuery(metadata=own))) == 2
    assert sdk.list_all(query=SandboxQuery(metadata=own | {"n": "3"})) == []


def test_pages_go_from_newest_to_oldest_without_gaps(sdk, own):
    made = [sdk.create(metadata=own).sandbox_id for _ in range(5)]
    pages = sdk.list(query=SandboxQuery(metadata=own), limit=2)
    seen, sizes = [], []
    while pages.has_next:
        items = pages.next_items()
        sizes.append(len(items))
        seen += [each.sandbox_id for each in items]
    assert seen == made[::-1]
    assert sizes == [2, 2, 1]


def test_the_order_can_be_turned_round(sdk, own):
    made = [sdk.create(metadata=own).sandbox_id for _ in range(3)]
    found = sdk.list_all(query=SandboxQuery(metadata=own), order="asc", limit=1)
    assert [each.sandbox_id for each in found] == made


def test_states_filter(sdk, own):
    sandbox = sdk.create(metadata=own)
    running = sdk.list_all(query=SandboxQuery(metadata=own, state=[SandboxState.RUNNING]))
    assert [each.sandbox_id for each in running] == [sandbox.sandbox_id]
    assert running[0].state == SandboxState.RUNNING
    assert sdk.list_all(query=SandboxQuery(metadata=own, state=[SandboxState.PAUSED])) == []


def test_started_after_is_inclusive(sdk, own):
    sandbox = sdk.create(metadata=own)
    start = sandbox.get_info().started_at
    rounded = start.replace(microsecond=start.microsecond // 1000 * 1000)
    ask = lambda when: sdk.list_all(query=SandboxQuery(metadata=own, started_after=when))
    assert len(ask(rounded)) == 1
    assert ask(start + timedelta(seconds=1)) == []


def test_the_template_filters_by_name_and_id(sdk, own):
    sandbox = sdk.create(metadata=own)
    info = sandbox.get_info()
    for template in ("base", info.template_id):
        assert len(sdk.list_all(query=SandboxQuery(metadata=own, template=template))) == 1
    assert sdk.list_all(query=SandboxQuery(metadata=own, template="unknown-template")) == []


def test_killed_sandboxes_are_not_listed(sdk, own):
    sandbox = sdk.create(metadata=own)
    sandbox.kill()
    assert sdk.list_all(query=SandboxQuery(metadata=own)) == []


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=101", "limit=x", "nextToken=garbage", "order=sideways", "metadata=novalue"]
)
def test_nonsense_in_the_query_is_a_400(server, query):
    with server.api() as api:
        answer = api.get(f"/v2/sandboxes?{query}")
    assert answer.status_code == 400, answer.text
    assert answer.json()["code"] == 400 and isinstance(answer.json()["message"], str)


def test_version_one_lists_running_ones(server, sync_sdk):
    sandbox = sync_sdk.create()
    with server.api() as api:
        listed = api.get("/sandboxes").json()
    (entry,) = [each for each in listed if each["sandboxID"] == sandbox.sandbox_id]
    for key in ("templateID", "clientID", "startedAt", "endAt", "cpuCount", "memoryMB", "diskSizeMB", "state", "envdVersion"):
        assert entry[key] not in (None, ""), key


def test_the_total_of_running_ones_is_in_a_header(server, sync_sdk):
    sync_sdk.create()
    with server.api() as api:
        answer = api.get("/v2/sandboxes?state=running&limit=1")
    assert int(answer.headers["x-total-running"]) >= 1


def test_the_built_in_template_is_listed_and_found(server: Server):
    with server.api() as api:
        (template,) = [each for each in api.get("/templates").json() if "base" in each["aliases"]]
        assert api.get(f"/templates/{template['templateID']}").status_code == 200
        assert api.get("/templates/aliases/base").status_code == 200
        assert api.get("/templates/aliases/nope").status_code == 404
