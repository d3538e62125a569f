import pytest


@pytest.fixture(autouse=True, scope="session")
def _server_first(server):
    """The clients read SSL_CERT_FILE once, at their first use: it must be there by then."""
