import os
import shlex
import signal
from pathlib import Path

import pytest

from machines import image as images
from machines.client import Client
from machines.machine import Machine, Unreachable, sweep
from machines.park import Kind, Park
from machines.recipe import MACHINES
from machines.serving import LOG, Serving
from machines.tools import why_not
from support.server import binary

# Under emulation everything takes ten times as long, and the first check of a machine boots it.
WITHIN = 900
PARK = pytest.StashKey[Park]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "short: part of the short form, on one boot of one machine")
    config.addinivalue_line("markers", "kind(which): the kind of machine that the checks of a module want")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "release" in metafunc.fixturenames:
        chosen = os.environ.get("SOULBOX_MACHINES", "debian12").split(",")
        metafunc.parametrize("release", chosen, scope="session")


def kind_of(item: pytest.Item) -> Kind:
    marker = item.get_closest_marker("kind")
    return marker.args[0] if marker else Kind.STOCK


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    ours = [each for each in items if here in each.path.parents]
    releases = list(MACHINES)
    ours.sort(key=lambda each: (releases.index(each.callspec.params["release"]), list(Kind).index(kind_of(each))))
    items[:] = [each for each in items if each not in ours] + ours
    for each in ours:
        if each.get_closest_marker("timeout") is None:
            each.add_marker(pytest.mark.timeout(WITHIN))


@pytest.fixture(scope="session")
def park(request):
    sweep()
    park = request.config.stash[PARK] = Park(binary())
    return park


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Not with the fixture: a machine that is kept stays for longer than any check may take."""
    park = session.config.stash.get(PARK, None)
    if park is None:
        return
    try:
        if os.environ.get("SOULBOX_MACHINES_KEEP") and park.booted is not None:
            reporter = session.config.pluginmanager.get_plugin("terminalreporter")
            command = shlex.join(park.booted.machine.ssh_command("bash -l"))
            reporter.write_line(f"\n\nthe machine runs until Ctrl-C; get in with:\n{command}")
            signal.pause()
    except KeyboardInterrupt:
        pass
    finally:
        park.clear()


@pytest.fixture(scope="module")
def booted(request, release, park):
    recipe = MACHINES[release]
    if reason := os.environ.get("SOULBOX_MACHINES_SKIP") or why_not(recipe):
        pytest.skip(reason)
    marker = request.node.get_closest_marker("kind")
    booted = park.get(images.ready(recipe), marker.args[0] if marker else Kind.STOCK)
    if booted.used:
        booted.machine.run("/opt/checks/guest/tidy.sh")
    booted.used = True
    return booted


@pytest.fixture(scope="module")
def machine(booted) -> Machine:
    return booted.machine


@pytest.fixture(scope="module")
def client(booted) -> Client:
    return booted.client


@pytest.fixture(scope="module")
def serving(machine):
    """A server that root started, for the checks of a module."""
    serving = Serving(machine)
    serving.start()
    return serving


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo):
    """With a failure comes what the machine has to say."""
    report = yield
    booted = getattr(item, "funcargs", {}).get("booted")
    if report.failed and booted is not None and booted.machine.process is not None:
        try:
            said = booted.machine.ssh(f"tail -n 30 {LOG}; echo '--- kernel'; dmesg | tail -n 15", within=60).text
        except (Unreachable, OSError):
            said = booted.machine.serial_tail()
        report.sections.append(("the machine", said))
    return report
