"""After a reboot the frozen processes are gone: a paused sandbox comes back from its files.

The reboot is played by ending a paused sandbox's processes from outside while no server runs.
"""

import pytest
from e2b import Sandbox

from support.census import Census
from support.reboot import lose_memory
from support.sdk import Sdk
from support.waiting import eventually

pytestmark = pytest.mark.timeout(180)


def test_a_paused_sandbox_whose_memory_is_lost_comes_back_from_its_files_and_says_so(own_server):
    server = own_server().start()
    sandbox = Sandbox.create(timeout=600, metadata={"kept": "too"}, envs={"A": "b"}, **server.sdk)
    sandbox.files.write("kept", "here")
    sandbox.commands.run("exec sleep 300", background=True, timeout=0).disconnect()
    sandbox.commands.run("head -c 5000000 /dev/urandom > data")
    whole = sandbox.commands.run("sha256sum data").stdout
    boot = sandbox.files.read("/proc/sys/kernel/random/boot_id")
    assert sandbox.pause() is True
    server.kill9()
    lose_memory(sandbox.sandbox_id)
    server.start()

    with server.api() as api:
        told = api.get(f"/sandboxes/{sandbox.sandbox_id}").json()
        assert (told["state"], told["restored"], told["durable"]) == ("paused", "filesystem", "local"), told
        answer = api.post(f"/v2/sandboxes/{sandbox.sandbox_id}/connect", json={"timeout": 300})
        assert answer.status_code == 201, answer.text
        assert answer.json()["restored"] == "filesystem", answer.text

    again = Sdk("sync", server.sdk, None).connect(sandbox.sandbox_id, timeout=300)
    assert again.files.read("kept") == "here"
    assert again.commands.run("sha256sum data").stdout == whole
    assert again.commands.run("echo $A").stdout == "b\n"
    assert again.get_info().metadata == {"kept": "too"}
    assert not again.commands.run("pgrep -x sleep || true").stdout
    assert again.files.read("/proc/sys/kernel/random/boot_id") != boot
    # It is a sandbox like any other from here on.
    assert again.pause() is True
    assert Sdk("sync", server.sdk, None).connect(sandbox.sandbox_id, timeout=60).files.read("kept") == "here"


@pytest.mark.alone
def test_what_was_lost_leaves_nothing_behind(own_server):
    server = own_server().start()
    Sandbox.create(timeout=60, **server.sdk).kill()
    before = Census.settled(server)
    sandbox = Sandbox.create(timeout=600, **server.sdk)
    sandbox.pause()
    server.kill9()
    lose_memory(sandbox.sandbox_id)
    server.start()
    assert Sdk("sync", server.sdk, None).connect(sandbox.sandbox_id, timeout=60).is_running()
    assert sandbox.kill() is True
    Census.returns_to(before, server)


def test_a_running_sandbox_that_was_lost_is_gone_and_says_so(own_server):
    """Only what was paused is kept over a reboot; the rest must not be listed as if it ran."""
    server = own_server().start()
    sandbox = Sandbox.create(timeout=600, **server.sdk)
    server.kill9()
    lose_memory(sandbox.sandbox_id)
    server.start()
    sdk = Sdk("sync", server.sdk, None)
    eventually(lambda: sdk.list_all() == [], within=10)
    with server.api() as api:
        answer = api.get(f"/sandboxes/{sandbox.sandbox_id}")
        assert answer.status_code == 404
        assert "ended" in answer.json()["message"], answer.text
