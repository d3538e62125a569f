"""The definitions that come with the server, really built: minutes, and the package sources."""

import os

import httpx
import pytest

SLOW = pytest.mark.skipif(
    os.environ.get("SOULBOX_TEST_SLOW") is None,
    reason="builds gigabytes: run it with SOULBOX_TEST_SLOW=1 (tests/interpreter builds base-debian and code-interpreter-v1 in any case)",
)
pytestmark = [SLOW, pytest.mark.timeout(1500), pytest.mark.registries, pytest.mark.usefixtures("registries")]


def build(server, name: str) -> str:
    done = server.cli("template", "build", "--builtin", name, timeout=1200)
    text = done.stdout.decode() + done.stderr.decode()
    assert done.returncode == 0, text[-5000:]
    return text


def test_debian_has_the_usual_tools(server, run_in):
    build(server, "base-debian")
    out = run_in("base-debian", ". /etc/os-release; echo $ID $VERSION_ID; python --version; git --version; sudo whoami")
    assert out.startswith("debian 12\nPython 3.11") and out.endswith("root\n"), out
    out = run_in("base-debian", "pip install -q six && python -c 'import six; print(six.__name__)'", timeout=120)
    assert out == "six\n"
    out = run_in("base-debian", "sudo apt-get update -q > /dev/null && sudo apt-get install -yq hello > /dev/null && hello", timeout=120)
    assert out == "Hello, world!\n"


def test_agents_find_their_tools_and_a_place_for_more(server, run_in):
    build(server, "agent")
    out = run_in("agent", "git --version; rg --version | head -1; node --version; python3 --version; gcc --version | head -1; jq --version")
    assert len(out.splitlines()) == 6, out
    out = run_in("agent", "npm install -g --silent semver && semver 1.2.3 && command -v semver", timeout=120)
    assert out.split() == ["1.2.3", "/opt/agents/bin/semver"]


def test_the_interpreter_has_its_libraries_and_answers(server, made, answers):
    build(server, "code-interpreter-v1")
    sandbox = made.create(template="code-interpreter-v1", timeout=300)
    versions = sandbox.commands.run(
        "python -c 'import matplotlib, numpy, pandas, PIL, sklearn, ipykernel; print(matplotlib.__version__)'; node --version"
    ).stdout.split()
    assert versions[0].startswith("3.10.") and versions[1].startswith("v24.")
    assert "OK" in answers(sandbox, 49999, "/health")


def test_the_slim_interpreter_says_what_it_lacks(server, made):
    build(server, "code-interpreter-slim")
    sandbox = made.create(template="code-interpreter-slim", timeout=300)
    headers = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "49999"}
    said = {
        language: httpx.post(f"{server.url}/execute", headers=headers, json={"code": "1+1", "language": language}, timeout=60)
        for language in ("python", "r", "java")
    }
    assert '"2"' in said["python"].text and said["python"].status_code == 200
    assert said["r"].status_code == said["java"].status_code == 500
    assert "Failed to create context" in said["r"].text
