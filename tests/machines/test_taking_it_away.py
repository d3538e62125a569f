"""After what the README says under "Taking it away" the machine is as it was."""

import json

import pytest

from machines.serving import LOG, Serving
from support.waiting import eventually


def traces(machine) -> dict[str, list[str]]:
    return json.loads(machine.run("python3 /opt/checks/guest/traces.py"))


@pytest.mark.short
def test_nothing_is_left_after_taking_it_away(machine, client):
    machine.run("rm -f /usr/local/bin/soulbox")
    before = traces(machine)
    machine.run("install -m 755 /opt/checks/soulbox /usr/local/bin/soulbox")
    serving = Serving(machine)
    serving.start()
    client.run("first_steps")
    client.run("volume")
    client.run("leave", "1")
    client.run("leave", "1", "pause")
    took = serving.take_away()
    machine.run(f"rm /usr/local/bin/soulbox {LOG}")

    def nothing() -> bool:
        left = {kind: sorted(set(found) - set(before[kind])) for kind, found in traces(machine).items()}
        left = {kind: found for kind, found in left.items() if found}
        assert left == {}
        return True

    # The kernel takes namespaces down some time after their last process.
    eventually(nothing, within=60, every=2)
    assert took < 20
