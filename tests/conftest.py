import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from support.blocking import Loop
from support.names import resolve_localhost_names
from support.sdk import Sdk
from support.server import Server
from support.turns import turn

for name in [each for each in os.environ if each.startswith("E2B_")]:
    del os.environ[name]
resolve_localhost_names()


def is_alone(item: pytest.Item) -> bool:
    return item.get_closest_marker("alone") is not None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those that must be alone come last: the other lane waits for them, once."""
    items.sort(key=is_alone)


# First, and so around what bounds a test's time: waiting for a turn is no part of it.
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item):
    with turn.taken(alone=is_alone(item)):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo):
    """With a failure comes what its servers have to say: "its log says what" is of no use without it."""
    report = yield
    if report.failed:
        for name, value in getattr(item, "funcargs", {}).items():
            server = value if isinstance(value, Server) else getattr(value, "server", None)
            if isinstance(server, Server):
                report.sections.append((f"log of {name}", server.log_tail()))
    return report


@pytest.fixture(scope="session")
def loop():
    loop = Loop()
    yield loop
    loop.close()


@pytest.fixture(scope="session")
def scratch(pytestconfig):
    folder = Path(tempfile.mkdtemp(prefix="soulbox-test-"))
    if os.environ.get("SOULBOX_TEST_KEEP") is None:
        # At the very end: tens of thousands of files on a slow disk are not the last test's time.
        pytestconfig.add_cleanup(lambda: subprocess.run(["rm", "-rf", str(folder)]))
    return folder


@pytest.fixture(scope="session")
def server(scratch):
    """One server for all tests that do not stop or break it."""
    server = Server(scratch / "shared")
    try:
        server.start()
        # Read by the clients' TLS when they are first used.
        os.environ["SSL_CERT_FILE"] = server.env_tls["SSL_CERT_FILE"]
        yield server
    finally:
        server.finish()


@pytest.fixture
def own_server(scratch, request):
    """A server that a test may kill, restart and configure; not started yet."""
    made: list[Server] = []

    def make(name: str = "own", **kwargs) -> Server:
        folder = scratch / f"{request.node.name[:40]}-{name}-{len(made)}".replace("/", "_")
        made.append(Server(folder, **kwargs))
        return made[-1]

    yield make
    for each in made:
        each.finish()


@pytest.fixture(params=["sync", "async"])
def sdk(request, server, loop):
    """The Python client, once as `Sandbox` and once as `AsyncSandbox`."""
    sdk = Sdk(request.param, server.sdk, loop)
    yield sdk
    sdk.finish()


@pytest.fixture
def sync_sdk(server):
    sdk = Sdk("sync", server.sdk, None)
    yield sdk
    sdk.finish()


@pytest.fixture
def tls_sdk(server):
    sdk = Sdk("sync", server.sdk_tls, None)
    yield sdk
    sdk.finish()


@pytest.fixture
def sandbox(sdk):
    return sdk.create(timeout=120)


@pytest.fixture
def box(sync_sdk):
    """A sandbox of the synchronous client, where the other one would add nothing."""
    return sync_sdk.create(timeout=120)
