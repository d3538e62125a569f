import subprocess

import httpx
import pytest

from support.images.catalogue import publish
from support.images.hostile import HostileRegistry
from support.images.registry import Registry
from support.sdk import Sdk
from support.server import Server
from support.tenants import new_tenant
from support.templates import Templates
from support.waiting import eventually


@pytest.fixture(scope="session")
def registry(scratch):
    """Stands in for Docker Hub."""
    registry = Registry(scratch / "registry")
    try:
        publish(registry)
        yield registry
    finally:
        registry.close()


@pytest.fixture(scope="session")
def private_registry(scratch):
    registry = Registry(scratch / "private-registry", user="someone", password="s3cret")
    yield registry
    registry.close()


@pytest.fixture(scope="session")
def hostile():
    registry = HostileRegistry()
    yield registry
    registry.close()


@pytest.fixture(scope="session")
def registry_options(registry, private_registry, hostile):
    """What a server is started with to know them all."""
    allowed = [registry.name, private_registry.name, hostile.name]
    flags = [flag for name in allowed for flag in ("--registry-allow", name)]
    return [*flags, "--registry-mirror", f"docker.io={registry.url}"]


@pytest.fixture(scope="session")
def server(scratch, registry_options):
    server = Server(scratch / "templates", extra=[*registry_options, "--warm", "0"])
    try:
        server.start()
        # Tenants are read at the start.
        server.terminate()
        server.stranger = new_tenant(server, "stranger")
        yield server.start()
    finally:
        server.finish()


@pytest.fixture
def stranger(server):
    """Another tenant's view of the server."""
    templates = Templates("sync", server, None, {"api_key": server.stranger, "api_url": server.url})
    yield templates
    templates.finish()


@pytest.fixture(params=["sync", "async"])
def templates(request, server, loop):
    """The Python client, once as `Template` and once as `AsyncTemplate`."""
    templates = Templates(request.param, server, loop)
    yield templates
    templates.finish()


@pytest.fixture
def sync_templates(server):
    templates = Templates("sync", server, None)
    yield templates
    templates.finish()


@pytest.fixture
def made(server):
    """Makes sandboxes and ends them before their templates are removed."""
    sdk = Sdk("sync", server.sdk, None)
    yield sdk
    sdk.finish()


@pytest.fixture
def run_in(made):
    """`run_in(template, command)`: the output in a new sandbox of it."""

    def run(template, command, **kwargs):
        sandbox = made.create(template=template, timeout=120)
        return sandbox.commands.run(command, **kwargs).stdout

    return run


@pytest.fixture
def answers(server):
    """Waits until a port of a sandbox answers through the server, and returns what."""

    def ask(sandbox, port, path="/", within=15):
        # Without the key, with which a request is for the API.
        with httpx.Client(base_url=server.url, timeout=30) as http:
            headers = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": str(port)}

            def answer():
                got = http.get(path, headers=headers)
                return got.text if got.status_code == 200 else None

            return eventually(answer, within=within, what=f"port {port} answers")

    return ask


@pytest.fixture(scope="session")
def registries():
    """For tests whose builds install packages."""
    probe = subprocess.run(
        "d=$(mktemp -d); python3 -m pip download --no-deps --no-cache-dir -q -d $d six==1.17.0; code=$?; rm -r $d; exit $code",
        shell=True, capture_output=True, timeout=90,
    )  # fmt: skip
    if probe.returncode != 0:
        pytest.skip("the host itself cannot reach the package registries")
