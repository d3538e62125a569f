"""The code interpreter with the published client, in sandboxes of the built-in template."""

import subprocess

import pytest
from e2b_code_interpreter import Sandbox

from support.server import Server


@pytest.fixture(scope="session")
def package_sources():
    """The template installs packages: without their sources there is nothing to test."""
    probe = subprocess.run(
        "d=$(mktemp -d); python3 -m pip download --no-deps --no-cache-dir -q -d $d six==1.17.0; code=$?; rm -r $d; exit $code",
        shell=True, capture_output=True, timeout=90,
    )  # fmt: skip
    if probe.returncode != 0:
        pytest.skip("the host itself cannot reach the package registries")


@pytest.fixture(scope="session")
def server(scratch, package_sources):
    server = Server(scratch / "interpreter", extra=["--warm", "4", "--prebuild", "code-interpreter-v1"])
    try:
        server.start()
        # Follows the build that the start has begun.
        built = server.cli("template", "build", "--builtin", "code-interpreter-v1", timeout=1200)
        assert built.returncode == 0, built.stdout[-3000:] + built.stderr[-3000:]
        yield server
    finally:
        server.finish()


@pytest.fixture
def make(server):
    """Makes sandboxes of the interpreter and ends them with the test."""
    made = []

    def make(**options):
        made.append(Sandbox.create(timeout=300, **server.sdk, **options))
        return made[-1]

    yield make
    for each in made:
        each.kill()


@pytest.fixture
def box(make):
    return make()
