"""A fork costs its source nothing, and its children live and die on their own.

SOULBOX_FORK_MIB sets how much the source holds in files: 256 in the suite, 1024 in the long form.
"""

import itertools
import os
import time

import pytest
from e2b import RateLimitException, Sandbox, SandboxException

from support.census import Census
from support.probe import Probe
from support.sdk import Sdk

MIB = int(os.environ.get("SOULBOX_FORK_MIB", "256"))
# The source may stand still while what changed is copied; that is memory speed, not disk speed.
LONGEST_GAP = 2.0 + 2.0 * MIB / 1024

pytestmark = pytest.mark.timeout(300)

FILL = """
import hashlib, os
whole = hashlib.sha256()
os.makedirs("data", exist_ok=True)
for number in range({mib} // 16):
    block = os.urandom(1 << 20) * 16
    whole.update(block)
    with open(f"data/{{number:03}}", "wb") as file:
        file.write(block)
print(whole.hexdigest())
"""
CHECK = "cat data/* | sha256sum | cut -d' ' -f1"


def fill(sandbox, mib: int) -> str:
    sandbox.files.write("fill.py", FILL.format(mib=mib))
    return sandbox.commands.run("python3 fill.py", timeout=120).stdout.strip()


def checksum(sandbox) -> str:
    return sandbox.commands.run(CHECK, timeout=120).stdout.strip()


def forks(source, count: int, **options) -> list[Sandbox]:
    children = source.fork(count=count, **({"timeout": 600, "request_timeout": 200} | options))
    assert len(children) == count
    for child in children:
        assert isinstance(child, Sandbox), child
    return children


@pytest.mark.alone
def test_the_source_keeps_serving_while_it_is_forked(server, made, record_property):
    source = made.create(timeout=600)
    whole = fill(source, MIB)
    end = source.get_info().end_at
    with Probe(server, source) as probe:
        began = time.monotonic()
        children = forks(source, 2)
        took = time.monotonic() - began
    print(f"fork of {MIB} MiB into 2: {took:.2f} s; worst gap of the source {probe.worst * 1000:.0f} ms in {probe.answers} answers")
    record_property("fork_seconds", round(took, 3))
    record_property("worst_gap_seconds", round(probe.worst, 3))
    assert probe.failures == []
    assert probe.worst < LONGEST_GAP
    assert source.get_info().end_at == end
    for each in (source, *children):
        assert checksum(each) == whole
    for each in children:
        each.kill()


def test_ten_children_are_ten_sandboxes_with_the_same_files(made):
    source = made.create(timeout=600, metadata={"of": "source"}, envs={"GIVEN": "to all"})
    source.files.write("from-source", "before")
    source.commands.run("exec sleep 300", background=True, timeout=0).disconnect()
    children = forks(source, 10)
    try:
        assert len({each.sandbox_id for each in (source, *children)}) == 11
        for number, child in enumerate(children):
            assert child.files.read("from-source") == "before"
            assert child.commands.run("echo $GIVEN").stdout == "to all\n"
            assert child.get_info().metadata == {"of": "source"}
            child.files.write("own", str(number))
            child.files.write("from-source", f"changed by {number}")
        source.files.write("from-source", "after")
        for number, child in enumerate(children):
            assert child.files.read("own") == str(number)
            assert child.files.read("from-source") == f"changed by {number}"
        assert source.files.read("from-source") == "after"
        assert not source.files.exists("own")
    finally:
        for child in children:
            child.kill()


def test_a_child_may_delete_rename_and_replace_what_it_inherited(made):
    source = made.create(timeout=600)
    source.commands.run("mkdir -p tree/deep && echo a > tree/a && echo b > tree/deep/b && ln -s a tree/link && chmod 700 tree")
    (child,) = forks(source, 1)
    child.commands.run("rm tree/a && mv tree/deep tree/moved && echo c >> tree/moved/b && rm tree/link && mkdir tree/link")
    assert child.commands.run("cd tree && find . | sort | tr '\\n' ' '; cat moved/b").stdout == ". ./link ./moved ./moved/b b\nc\n"
    assert source.commands.run("cd tree && find . | sort | tr '\\n' ' '; cat deep/b; cat link").stdout == ". ./a ./deep ./deep/b ./link b\na\n"
    # What is gone stays gone one generation further.
    (grandchild,) = forks(child, 1)
    assert grandchild.commands.run("cd tree && find . | sort | tr '\\n' ' '; cat moved/b").stdout == ". ./link ./moved ./moved/b b\nc\n"
    grandchild.kill()
    child.kill()


@pytest.mark.parametrize("order", list(itertools.permutations(["source", "child", "grandchild"])), ids="-".join)
def test_the_order_of_killing_does_not_matter(server, made, order):
    family = {"source": made.create(timeout=600)}
    family["source"].files.write("kept", "through all")
    (family["child"],) = forks(family["source"], 1)
    (family["grandchild"],) = forks(family["child"], 1)
    for number, name in enumerate(order):
        assert family[name].kill() is True
        for left in order[number + 1 :]:
            assert family[left].files.read("kept") == "through all"
            assert family[left].commands.run("echo more > more; cat more").stdout == "more\n"


@pytest.mark.alone
def test_forking_leaves_nothing(own_server):
    server = own_server().start()

    def one_round(count: int) -> None:
        source = Sandbox.create(timeout=600, **server.sdk)
        fill(source, 32)
        children = forks(source, count)
        grandchildren = forks(children[0], 2)
        children[1].pause()
        for each in (children[0], source, *grandchildren, *children[1:]):
            assert each.kill() is True

    one_round(2)
    before = Census.settled(server)
    for _ in range(3):
        one_round(4)
    Census.returns_to(before, server)
    assert images(server) == []


def images(server) -> list[str]:
    return [str(each) for each in (server.data / "snapshots").rglob("*.img")]


def test_each_result_stands_on_its_own(own_server):
    server = own_server(extra=["--max-sandboxes", "5"]).start()
    sdk = Sdk("sync", server.sdk, None)
    source = sdk.create(timeout=600)
    source.files.write("kept", "here")
    other = sdk.create(timeout=600)
    results = source.fork(count=4, timeout=600)
    children = [each for each in results if isinstance(each, Sandbox)]
    refused = [each for each in results if isinstance(each, Exception)]
    assert (len(results), len(children), len(refused)) == (4, 3, 1), results
    assert isinstance(refused[0], (RateLimitException, SandboxException)), refused
    for each in children:
        assert each.files.read("kept") == "here"
    assert other.is_running()


def test_a_count_outside_the_range_is_refused_and_makes_nothing(server, made):
    source = made.create(timeout=600)
    with server.api() as api:
        before = {each["sandboxID"] for each in api.get("/v2/sandboxes").json()}
        for count in (0, -1, 101, 10**9):
            answer = api.post(f"/sandboxes/{source.sandbox_id}/fork", json={"count": count})
            assert answer.status_code == 400, answer.text
            assert answer.json()["code"] == 400
        assert {each["sandboxID"] for each in api.get("/v2/sandboxes").json()} == before


def test_a_fork_outlives_the_server(own_server):
    server = own_server().start()
    source = Sandbox.create(timeout=600, **server.sdk)
    source.files.write("kept", "here")
    (child,) = forks(source, 1)
    source.kill()
    server.kill9()
    server.start()
    assert child.files.read("kept") == "here"
    (again,) = forks(child, 1)
    assert again.files.read("kept") == "here"
