import pytest

from support.sdk import Sdk


@pytest.fixture(autouse=True, scope="session")
def _server_first(server):
    """The clients read SSL_CERT_FILE once, at their first use: it must be there by then."""


@pytest.fixture
def made(server):
    """Makes sandboxes on the shared server and ends them with the test."""
    sdk = Sdk("sync", server.sdk, None)
    yield sdk
    sdk.finish()
