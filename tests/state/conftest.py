import pytest

from support.sdk import Sdk


@pytest.fixture
def made(server):
    """Makes sandboxes on the shared server and ends them with the test."""
    sdk = Sdk("sync", server.sdk, None)
    yield sdk
    sdk.finish()
