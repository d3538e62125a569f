"""Every route, tried by those who must not and in ways that make no sense: the documented error, and
nothing changed."""

import json
import re
from dataclasses import dataclass

import httpx
import pytest
from e2b import Sandbox

from support.server import PROJECT
from support.tenants import new_tenant
from support.waiting import eventually

UNKNOWN = {
    "sandbox": "i" + "0" * 20,
    "template": "nosuchtemplate000000",
    "snapshot": "nosuchsnapshot000000",
    "build": "00000000-0000-4000-8000-000000000000",
    "key": "00000000-0000-4000-8000-000000000000",
    "secret": "00000000-0000-4000-8000-000000000000",
    "volume": "00000000-0000-4000-8000-000000000000",
    "webhook": "00000000-0000-4000-8000-000000000000",
    "team": "00000000-0000-4000-8000-000000000000",
}
TOO_LARGE = 3 * 1024 * 1024


@dataclass(frozen=True)
class Route:
    """One operation. `of` says what its `{id}` names; `body` is one that would be accepted."""

    method: str
    path: str
    of: str = ""
    body: object = None
    query: str = ""
    needs_body: bool = False

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    def url(self, ids: dict[str, str]) -> str:
        path = self.path.replace("{id}", ids.get(self.of, "")).replace("{build}", UNKNOWN["build"])
        return path.replace("{hash}", "0" * 64).replace("{tag}", "default").replace("{port}", "8000").replace("{alias}", ids["template"]) + self.query


def route(line: str, of: str = "", body: object = None, query: str = "", needs_body: bool = False) -> Route:
    method, path = line.split()
    return Route(method, path, of, json.dumps(body) if body is not None else None, query, needs_body)


ROUTES = [
    route("POST /sandboxes", body={"templateID": "base"}, needs_body=True),
    route("GET /sandboxes"),
    route("POST /v2/sandboxes", body={"templateID": "base"}, needs_body=True),
    route("GET /v2/sandboxes"),
    route("GET /sandboxes/metrics", query="?sandbox_ids=" + UNKNOWN["sandbox"]),
    route("GET /sandboxes/{id}", "sandbox"),
    route("DELETE /sandboxes/{id}", "sandbox"),
    route("POST /sandboxes/{id}/connect", "sandbox", {"timeout": 60}, needs_body=True),
    route("POST /v2/sandboxes/{id}/connect", "sandbox", {"timeout": 60}),
    route("POST /sandboxes/{id}/resume", "sandbox", {"timeout": 60}),
    route("POST /sandboxes/{id}/timeout", "sandbox", {"timeout": 60}, needs_body=True),
    route("POST /sandboxes/{id}/refreshes", "sandbox", {"duration": 60}),
    route("PUT /sandboxes/{id}/network", "sandbox", {"denyOut": ["10.0.0.0/8"]}, needs_body=True),
    route("GET /sandboxes/{id}/metrics", "sandbox"),
    route("GET /sandboxes/{id}/logs", "sandbox"),
    route("GET /v2/sandboxes/{id}/logs", "sandbox"),
    route("POST /sandboxes/{id}/pause", "sandbox", {}),
    route("POST /sandboxes/{id}/fork", "sandbox", {"count": 1}),
    route("POST /sandboxes/{id}/snapshots", "sandbox", {}),
    route("GET /snapshots"),
    route("GET /templates"),
    route("POST /templates"),
    route("GET /v2/templates"),
    route("POST /v2/templates"),
    route("GET /default-templates"),
    route("GET /templates/aliases/{alias}"),
    route("POST /templates/tags", body={"target": "snapshot", "tags": ["x"]}, needs_body=True),
    route("DELETE /templates/tags", body={"name": "snapshot", "tags": ["x"]}, needs_body=True),
    route("GET /templates/{id}", "template"),
    route("POST /templates/{id}", "template"),
    route("PATCH /templates/{id}", "template", {"public": True}),
    route("DELETE /templates/{id}", "template"),
    route("PATCH /v2/templates/{id}", "template", {"public": True}),
    route("GET /templates/{id}/tags", "template"),
    route("GET /templates/{id}/tags/count", "template"),
    route("GET /templates/{id}/tags/exists", "template", query="?tag=default"),
    route("GET /templates/{id}/tags/groups", "template"),
    route("GET /templates/{id}/tags/{tag}/assignments", "template"),
    route("GET /templates/{id}/builds/{build}/status", "template"),
    route("GET /templates/{id}/builds/{build}/logs", "template"),
    route("POST /templates/{id}/builds/{build}", "template"),
    route("POST /v2/templates/{id}/builds/{build}", "template", {"fromImage": "x", "steps": []}),
    route("POST /templates/builtin/{id}", "template"),
    route("POST /v1/sandboxes/{id}/execute", "sandbox", {"language": "sh", "code": "true"}, needs_body=True),
    route("GET /v1/sandboxes/{id}/languages", "sandbox"),
    route("GET /v1/sandboxes/{id}/ports/{port}", "sandbox"),
    route("GET /v1/df"),
    route("POST /v1/prune", body={"dryRun": True}),
    route("GET /v1/broken"),
    route("POST /v1/broken/{id}/recover", "sandbox"),
    route("GET /v1/broken/{id}/disk", "sandbox"),
    route("DELETE /v1/broken/{id}", "sandbox"),
    route("GET /templates/{id}/files/{hash}", "template"),
    route("POST /v3/templates", body={"name": "x"}),
    route("GET /teams"),
    route("GET /teams/{id}/metrics", "team"),
    route("GET /teams/{id}/metrics/max", "team", query="?metric=concurrent_sandboxes"),
    route("GET /api-keys"),
    route("POST /api-keys", body={"name": "x"}, needs_body=True),
    route("PATCH /api-keys/{id}", "key", {"name": "x"}, needs_body=True),
    route("DELETE /api-keys/{id}", "key"),
    route("GET /secrets"),
    route("POST /secrets", body={"name": "x", "value": "y"}, needs_body=True),
    route("GET /secrets/{id}", "secret"),
    route("POST /secrets/{id}", "secret", {"value": "changed"}, needs_body=True),
    route("DELETE /secrets/{id}", "secret"),
    route("GET /volumes"),
    route("POST /volumes", body={"name": "x"}, needs_body=True),
    route("GET /volumes/{id}", "volume"),
    route("DELETE /volumes/{id}", "volume"),
    route("GET /volumecontent/{id}/path", "volume", query="?path=/kept"),
    route("PATCH /volumecontent/{id}/path", "volume", {"mode": 0o600}, query="?path=/kept", needs_body=True),
    route("DELETE /volumecontent/{id}/path", "volume", query="?path=/kept"),
    route("GET /volumecontent/{id}/dir", "volume", query="?path=/"),
    route("POST /volumecontent/{id}/dir", "volume", query="?path=/more"),
    route("GET /volumecontent/{id}/file", "volume", query="?path=/kept"),
    route("PUT /volumecontent/{id}/file", "volume", query="?path=/kept"),
    route("GET /events/sandboxes"),
    route("GET /events/sandboxes/{id}", "sandbox"),
    route("GET /events/webhooks"),
    route("POST /events/webhooks", body={"name": "x", "url": "http://127.0.0.1:9/", "events": ["sandbox.lifecycle.created"], "enabled": True, "signatureSecret": "s" * 32}, needs_body=True),
    route("GET /events/webhooks/{id}", "webhook"),
    route("PATCH /events/webhooks/{id}", "webhook", {"name": "y"}, needs_body=True),
    route("DELETE /events/webhooks/{id}", "webhook"),
    route("POST /access-tokens", body={"name": "x"}),
    route("DELETE /access-tokens/{id}", "key"),
    route("GET /nodes"),
    route("GET /nodes/{id}", "key"),
    route("POST /nodes/{id}", "key", {"status": "draining"}),
    route("POST /admin/teams/{id}/sandboxes/kill", "team"),
]  # fmt: skip

WITH_ID = [each for each in ROUTES if each.of]
WITH_BODY = [each for each in ROUTES if each.body is not None]
OF_SANDBOX = [each for each in ROUTES if each.of == "sandbox"]
# A file of a volume is any bytes: its limit is the volume's, and no JSON is expected.
named = dict(ids=str)


def ask(api: httpx.Client, route: Route, ids: dict[str, str], content=None, **options) -> httpx.Response:
    content = route.body if content is None else content
    headers = {"Content-Type": "application/json"} if content is not None else {}
    return api.request(route.method, route.url(ids), content=content, headers=headers, **options)


def is_the_documented_error(answer: httpx.Response, *statuses: int) -> None:
    assert answer.status_code in statuses, f"{answer.status_code} {answer.text[:300]}"
    body = answer.json()
    assert body["code"] == answer.status_code, body
    assert isinstance(body["message"], str) and body["message"], body
    assert set(body) <= {"code", "message", "error_code"}, body
    for leaked in ("panicked", "/work/", "crates/", "soulbox.db", "sqlx"):
        assert leaked not in body["message"]


@dataclass
class Owner:
    """What the first tenant has, and a way to see that it is as it was."""

    api: httpx.Client
    sandbox: Sandbox
    ids: dict[str, str]

    def state(self) -> dict[str, object]:
        told = {path: self.api.get(path) for path in ("/v2/sandboxes", "/snapshots", "/templates", "/api-keys", "/secrets", "/volumes", "/events/webhooks")}
        state = {path: answer.json() if answer.status_code == 200 else answer.status_code for path, answer in told.items()}
        state["end"] = self.api.get(f"/sandboxes/{self.ids['sandbox']}").json().get("endAt")
        state["file"] = self.sandbox.files.read("kept")
        for each in state["/api-keys"]:
            each.pop("lastUsed", None)
        return state


@pytest.fixture(scope="module")
def owner(server):
    with server.api() as api:
        sandbox = Sandbox.create(timeout=1800, **server.sdk)
        sandbox.files.write("kept", "whole")
        ids = {
            "sandbox": sandbox.sandbox_id,
            "key": api.get("/api-keys").json()[0]["id"],
            "team": api.get("/teams").json()[0]["teamID"],
            **UNKNOWN_BUT_OURS,
        }
        taken = api.post(f"/sandboxes/{sandbox.sandbox_id}/snapshots", json={})
        assert taken.status_code == 201, taken.text
        ids["template"] = taken.json()["snapshotID"].split(":")[0]
        ids |= {kind: made for kind, path, body, field in MADE if (made := make(api, path, body, field))}
        yield Owner(api, sandbox, ids)
        sandbox.kill()
        api.delete(f"/templates/{ids['template']}")


UNKNOWN_BUT_OURS = {kind: UNKNOWN[kind] for kind in ("template", "secret", "volume", "webhook")}
MADE = [
    ("secret", "/secrets", {"name": "OURS", "value": "s3cret"}, "secretID"),
    ("volume", "/volumes", {"name": "ours"}, "volumeID"),
    ("webhook", "/events/webhooks", {"name": "ours", "url": "http://127.0.0.1:9/", "events": ["sandbox.lifecycle.created"], "enabled": True, "signatureSecret": "s" * 32}, "id"),
]  # fmt: skip


def make(api: httpx.Client, path: str, body: object, field: str) -> str | None:
    answer = api.post(path, json=body)
    if answer.status_code not in (200, 201):
        return None
    return answer.json().get(field) or answer.json().get("id")


@pytest.fixture(scope="module")
def stranger(server):
    """Another tenant's key."""
    with server.api(new_tenant(server, "stranger")) as api:
        # The server looks for keys made elsewhere now and then.
        eventually(lambda: api.get("/teams").status_code == 200, what="the stranger's key is known")
        yield api


def test_no_route_of_the_server_is_missing_here():
    surfaces = [PROJECT / "crates" / "api" / "src" / name for name in ("e2b.rs", "v1.rs")]
    source = "".join(each.read_text() for each in surfaces)
    served = {shape(each) for each in re.findall(r'\.route\(\s*"([^"]+)"', source)}
    assert served
    tried = {shape(each.path) for each in ROUTES} | {"/health"}
    missing = {each for each in served if each not in tried and not each.startswith("/admin/")}
    assert not missing


def shape(path: str) -> str:
    return re.sub(r"\{[^}]+\}", "{}", path)


@pytest.mark.parametrize("route", ROUTES, **named)
def test_without_a_key(server, owner, route):
    with httpx.Client(base_url=server.url, timeout=30) as nobody:
        is_the_documented_error(ask(nobody, route, owner.ids), 401)
        for key in ("", "nonsense", "e2b_" + "0" * 40):
            answer = nobody.request(route.method, route.url(owner.ids), headers={"X-API-Key": key})
            is_the_documented_error(answer, 401)


@pytest.mark.parametrize("route", WITH_ID, **named)
def test_with_another_tenant_s_key(owner, stranger, route):
    """Refused as if it were not there: the answer does not tell that it is."""
    theirs, nothing = ask(stranger, route, owner.ids), ask(stranger, route, UNKNOWN)
    if route.path.startswith("/events/sandboxes"):
        # A filter, as E2B has it: for a stranger nothing happened.
        assert theirs.json() == nothing.json() == []
        return
    is_the_documented_error(theirs, 401, 403, 404, 410, 501)
    if route.of == "sandbox":
        assert theirs.status_code == 404
        hidden = theirs.text.replace(owner.ids["sandbox"], "ID"), nothing.text.replace(UNKNOWN["sandbox"], "ID")
        assert hidden[0] == hidden[1]


@pytest.mark.parametrize("route", WITH_ID, **named)
def test_with_an_unknown_id(owner, route):
    answer = ask(owner.api, route, UNKNOWN)
    if route.path.startswith("/events/sandboxes"):
        assert answer.json() == []
        return
    is_the_documented_error(answer, 401, 403, 404, 410, 501)
    if route.of == "sandbox":
        assert answer.status_code == 404


@pytest.mark.parametrize("route", WITH_ID, **named)
@pytest.mark.parametrize("name", ["..%2f..%2fetc", "%00", "a" * 4000, "%F0%9F%92%A9", "' OR 1=1 --"], ids=["dots", "nul", "long", "emoji", "quote"])
def test_with_a_malformed_id(owner, route, name):
    ids = {kind: name for kind in UNKNOWN}
    answer = ask(owner.api, route, ids)
    is_the_documented_error(answer, 400, 401, 403, 404, 405, 410, 414, 431, 501)


MALFORMED = {
    "not JSON": "{",
    "another type": '"text"',
    "a list": "[1, 2]",
    "not UTF-8": b"\xff\xfe{}",
    "deep": "[" * 100_000,
    "wrong fields": json.dumps({name: {"not": ["this"]} for name in ("templateID", "timeout", "duration", "count", "name", "memory", "tags", "target", "value", "public", "url", "denyOut", "mode", "allow_internet_access", "autoPause")}),
}  # fmt: skip


@pytest.mark.parametrize("route", WITH_BODY, **named)
@pytest.mark.parametrize("kind", MALFORMED)
def test_with_a_malformed_body(owner, route, kind):
    answer = ask(owner.api, route, owner.ids, content=MALFORMED[kind])
    is_the_documented_error(answer, 400, 401, 403, 404, 410, 422, 501)


@pytest.mark.parametrize("route", [each for each in ROUTES if each.needs_body], **named)
def test_without_a_body_that_is_needed(owner, route):
    answer = owner.api.request(route.method, route.url(owner.ids))
    is_the_documented_error(answer, 400, 401, 403, 404, 422, 501)


@pytest.mark.parametrize("route", WITH_BODY, **named)
def test_with_an_oversized_body(owner, route):
    body = json.loads(route.body) | {"metadata": {"x": "y" * TOO_LARGE}}
    try:
        answer = ask(owner.api, route, owner.ids, content=json.dumps(body))
    except (httpx.WriteError, httpx.RemoteProtocolError, httpx.ReadError):
        # It may hang up in the middle of the body; it must not be read to its end.
        return
    is_the_documented_error(answer, 401, 403, 404, 410, 413, 501)


@pytest.mark.parametrize("route", OF_SANDBOX, **named)
def test_after_the_sandbox_was_killed(owner, killed, route):
    answer = ask(owner.api, route, {**owner.ids, "sandbox": killed})
    if route.path.startswith("/events/") or route.path.endswith("/logs"):
        # What happened to it is told longer than it lives.
        assert answer.status_code == 200
        return
    is_the_documented_error(answer, 404)


@pytest.fixture(scope="module")
def killed(server):
    sandbox = Sandbox.create(timeout=60, **server.sdk)
    sandbox.kill()
    return sandbox.sandbox_id


def test_nothing_was_changed_by_any_of_it(owner, stranger, killed):
    before = owner.state()
    for each in WITH_ID:
        ask(stranger, each, owner.ids)
        ask(owner.api, each, UNKNOWN)
    for each in OF_SANDBOX:
        ask(owner.api, each, {**owner.ids, "sandbox": killed})
    for each in WITH_BODY:
        for body in MALFORMED.values():
            ask(owner.api, each, owner.ids, content=body)
    assert owner.state() == before


@pytest.mark.parametrize("path", ["/nothing", "/v9/sandboxes", "/sandboxes/a/b/c/d"])
def test_a_route_that_is_not_there(owner, path):
    is_the_documented_error(owner.api.get(path), 404)


@pytest.mark.parametrize("path", ["/sandboxes/metrics", "/teams", "/snapshots"])
def test_a_method_that_a_route_does_not_have(owner, path):
    is_the_documented_error(owner.api.patch(path, json={}), 405)
