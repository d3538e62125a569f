import pytest

from support.server import Server
from support.transcript import Transcript


@pytest.fixture(autouse=True, scope="session")
def _server_first(server):
    """The clients read SSL_CERT_FILE once, at their first use: it must be there by then."""


@pytest.fixture(scope="session")
def cli_server(scratch):
    """One whose lists have only what a transcript made."""
    server = Server(scratch / "cli")
    try:
        yield server.start()
    finally:
        server.finish()


@pytest.fixture
def transcript(cli_server, request):
    """What is said is compared with `transcripts/<test>.txt`; every sandbox ends with the test."""
    transcript = Transcript(cli_server, request.node.name.removeprefix("test_"))
    try:
        yield transcript
        transcript.compare()
    finally:
        cli_server.remove_all_sandboxes()
