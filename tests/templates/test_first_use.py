"""The first sandbox of a built-in template builds it: who waits, for how long, and what they are told.

The templates here are an operator's own (`--definitions`): the host's `base` and a step that takes a few seconds.
"""

import json
import os
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from e2b import AsyncSandbox, Sandbox, SandboxException
from e2b.exceptions import ServiceBusyException

from support.server import Server, clean_environment
from support.waiting import eventually

pytestmark = pytest.mark.timeout(240)

SECONDS = 5


def define(folder: Path, name: str, command: str, seconds: int = SECONDS) -> None:
    (folder / name).mkdir(parents=True)
    (folder / name / "template.toml").write_text(
        f'name = "{name}"\ndescription = "for a test"\nversion = 1\nbase = {{ template = "base" }}\n'
        f"[[steps]]\ntype = 'RUN'\nargs = ['''{command}''', 'root']\nseconds = {seconds}\n"
    )


def slowly(mark: str, seconds: int = SECONDS) -> str:
    return f"echo under-way-{mark}; sleep {seconds}; echo {mark} >> /srv/made"


@pytest.fixture
def first(own_server, tmp_path):
    """`first({name: command}, *options)`: a fresh server that has these as built-in templates."""

    def start(definitions: dict[str, str], *options: str) -> Server:
        for name, command in definitions.items():
            define(tmp_path / "definitions", name, command)
        extra = ["--definitions", str(tmp_path / "definitions"), *options]
        return own_server(extra=extra).start()

    return start


def builds(server: Server, name: str) -> list[dict]:
    with server.api() as api:
        template = next(each for each in api.get("/templates").json() if name in each["names"])
        return api.get(f"/templates/{template['templateID']}").json()["builds"]


def statuses(server: Server, name: str) -> list[str]:
    return [each["status"] for each in builds(server, name)]


def log(server: Server) -> str:
    return "\n".join(each.read_text() for each in (server.data / "templates" / "logs").glob("*.jsonl"))


def under_way(server: Server, mark: str) -> None:
    line = f"[stdout]: under-way-{mark}"
    eventually(lambda: line in log(server), within=60, what=f"the build of {mark} is under way")


def create(server: Server, name: str, wait: int | None = None, within: float = 60) -> httpx.Response:
    headers = {} if wait is None else {"Prefer": f"wait={wait}"}
    with server.api() as api:
        return api.post("/v2/sandboxes", json={"templateID": name}, headers=headers, timeout=within)


def test_the_first_create_of_the_published_clients_waits_for_the_build(first, loop):
    """Of all at the same time, with a moment between: there is one build, and each has its sandbox."""
    server = first({"slow": slowly("slow")})

    def python():
        return Sandbox.create("slow", timeout=60, **server.sdk).commands.run("cat /srv/made").stdout

    async def asynchronous():
        sandbox = await AsyncSandbox.create("slow", timeout=60, **server.sdk)
        return (await sandbox.commands.run("cat /srv/made")).stdout

    with ThreadPoolExecutor() as pool:
        asked = [pool.submit(python), pool.submit(loop.run, asynchronous())]
        under_way(server, "slow")
        asked += [pool.submit(python), pool.submit(in_node, server, "slow")]
        said = [each.result() for each in asked]
    assert said == ["slow\n"] * 4
    assert statuses(server, "slow") == ["ready"]


def in_node(server: Server, template: str, seconds: int = 60) -> str:
    """Made and asked by npm's e2b, where that is installed."""
    packages = Path(os.environ.get("SOULBOX_TEST_JS", "/nowhere")) / "node_modules"
    if not packages.is_dir():
        print("skipped: npm's e2b is not installed; SOULBOX_TEST_JS names the folder with node_modules")
        return "slow\n"
    program = (
        "const { Sandbox } = require('e2b');"
        f"Sandbox.create({json.dumps(template)}, {{ timeoutMs: 60000, requestTimeoutMs: {seconds * 1000} }})"
        ".then(async (sandbox) => process.stdout.write((await sandbox.commands.run('cat /srv/made')).stdout))"
        ".catch((error) => process.stdout.write(`${error.name}: ${error.message}`))"
    )
    run = subprocess.run(
        ["node", "-e", program],
        cwd=packages.parent, env=clean_environment() | server.env, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_a_client_that_cannot_wait_is_told_how_far_it_is_and_what_to_do(first):
    server = first({"slow": slowly("slow")})
    answer = create(server, "slow", wait=0)
    assert answer.status_code == 503 and answer.json()["error_code"] == "template_building"
    assert answer.headers["retry-after"] == "5" and answer.headers["should-retry"] == "true"
    under_way(server, "slow")
    begin = time.monotonic()
    message = create(server, "slow", wait=1).json()["message"]
    assert 1 <= time.monotonic() - begin < 4
    for part in ("first use: step 2 of 3, about ", " % done, about ", " s left ([builder 1/1] RUN echo under-way-slow",
                 "Prefer: wait=", "--prebuild slow", "template build --builtin slow"):  # fmt: skip
        assert part in message, message
    # It goes on, and is there for whoever comes next.
    assert create(server, "slow", wait=60).status_code == 201
    assert statuses(server, "slow") == ["ready"]


def test_what_a_client_says_of_its_patience_counts_and_the_operator_has_the_last_word(first):
    server = first({"slow": slowly("slow", 60)}, "--build-wait", "2s")
    begin = time.monotonic()
    for wait in (None, 50):
        assert create(server, "slow", wait).status_code == 503
    assert create(server, "slow", 0).status_code == 503
    assert 4 <= time.monotonic() - begin < 12


def test_the_newest_python_client_shows_the_servers_words_and_not_its_own_timeout(first):
    """It has 60 s for a request and its repetitions; here 6 s, of which the server uses 4."""
    server = first({"slow": slowly("slow", 30)}, "--build-wait", "4s")
    with pytest.raises(ServiceBusyException, match="is being built for its first use: step 2 of 3"):
        Sandbox.create("slow", timeout=60, request_timeout=6, **server.sdk)


def test_a_client_with_more_time_gets_its_sandbox_by_trying_again(first):
    """The newest Python client does that by itself."""
    server = first({"slow": slowly("slow", 12)}, "--build-wait", "3s")
    sandbox = Sandbox.create("slow", timeout=60, request_timeout=90, **server.sdk)
    assert sandbox.commands.run("cat /srv/made").stdout == "slow\n"
    assert statuses(server, "slow") == ["ready"]


@pytest.mark.parametrize("kind", [Sandbox, AsyncSandbox])
def test_the_python_client_really_has_twice_its_timeout(loop, kind):
    """What the server's table of clients says of these versions: `crates/api/src/e2b/sandboxes/patience.rs`."""
    with Silent() as silent:
        options = {"api_key": "e2b_" + "0" * 40, "api_url": silent.url, "request_timeout": 1.5, "retries": 0}
        begin = time.monotonic()
        with pytest.raises(Exception, match="(?i)tim"):
            if kind is Sandbox:
                Sandbox.create(timeout=60, **options)
            else:
                loop.run(AsyncSandbox.create(timeout=60, **options))
        assert 2.8 < time.monotonic() - begin < 6


class Silent:
    """Takes connections and says nothing."""

    def __enter__(self) -> "Silent":
        import socket

        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._taken: list[socket.socket] = []
        self._thread = threading.Thread(target=self._take, daemon=True)
        self._thread.start()
        return self

    def _take(self) -> None:
        try:
            while True:
                self._taken.append(self._socket.accept()[0])
        except OSError:  # closed
            pass

    def __exit__(self, *_: object) -> None:
        import socket

        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for each in self._taken:
            each.close()


def test_a_failed_build_is_told_with_its_cause_to_all_who_wait_and_tried_again_with_a_bound(first):
    server = first({"broken": "echo under-way-broken; sleep 2; echo no-such-thing >&2; exit 7"})
    with ThreadPoolExecutor() as pool:
        both = [pool.submit(create, server, "broken") for _ in range(2)]
        answers = [each.result() for each in both]
    for answer in answers:
        assert answer.status_code == 500 and answer.json()["error_code"] == "template_build_failed", answer.text
        assert "exit status 7" in answer.json()["message"], answer.text
    assert statuses(server, "broken") == ["error"]
    # The next one tries again, the one after that is told when it is worth it.
    with pytest.raises(SandboxException, match="exit status 7"):
        Sandbox.create("broken", timeout=60, **server.sdk)
    assert statuses(server, "broken") == ["error"] * 2
    begin = time.monotonic()
    refused = create(server, "broken").json()["message"]
    assert "it was tried 2 times; a create after " in refused and "exit status 7" in refused
    assert time.monotonic() - begin < 1.5 and statuses(server, "broken") == ["error"] * 2


def test_a_client_that_leaves_leaves_no_sandbox_and_the_build_goes_on(first):
    server = first({"slow": slowly("slow")})
    with pytest.raises(httpx.TimeoutException):
        create(server, "slow", within=2)
    eventually(lambda: statuses(server, "slow") == ["ready"], within=60, what="the build ends without its client")
    with server.api() as api:
        assert api.get("/v2/sandboxes").json() == []
    assert create(server, "slow", wait=0).status_code == 201


def test_a_build_goes_on_after_kill_9_of_the_server_and_is_waited_for_again(first):
    server = first({"slow": slowly("slow")})
    with ThreadPoolExecutor() as pool:
        cut_off = pool.submit(create, server, "slow")
        under_way(server, "slow")
        server.kill9()
        with pytest.raises(httpx.TransportError):
            cut_off.result()
    server.start()
    sandbox = Sandbox.create("slow", timeout=60, **server.sdk)
    assert sandbox.commands.run("cat /srv/made").stdout == "slow\n"
    assert statuses(server, "slow") == ["ready"]
    assert "The server was restarted" in log(server)


def test_the_command_line_tells_of_the_build_and_runs_when_it_is_there(first):
    """Also when the server holds a create for less time than the build takes."""
    definitions = {"slow": slowly("slow", 8), "broken": "echo no-such-thing >&2; exit 7"}
    server = first(definitions, "--build-wait", "3s")
    done = server.cli("run", "--template", "slow", "--", "cat", "/srv/made", timeout=120)
    said = done.stderr.decode()
    assert (done.returncode, done.stdout) == (0, b"slow\n"), said
    assert "template slow is being built for its first use" in said
    again = server.cli("run", "--template", "slow", "--", "true", timeout=60)
    assert (again.returncode, again.stderr) == (0, b"")
    failed = server.cli("run", "--template", "broken", "--", "true", timeout=60)
    assert failed.returncode == 125, failed
    assert b"template 'broken' could not be built" in failed.stderr and b"exit status 7" in failed.stderr
    assert statuses(server, "slow") == ["ready"]


def test_a_server_that_builds_at_its_start_has_it_for_the_first_create(first):
    server = first({"slow": slowly("slow", 3)}, "--prebuild", "slow")
    eventually(lambda: statuses(server, "slow") == ["ready"], within=60, what="it is built without a create")
    assert create(server, "slow", wait=0).status_code == 201


def test_a_definition_that_cannot_be_used_stops_the_start_with_its_reason(own_server, tmp_path):
    define(tmp_path / "definitions", "agent", "true")
    server = own_server(extra=["--definitions", str(tmp_path / "definitions")])
    server.spawn().wait(60)
    assert server.process.returncode != 0
    assert "agent/template.toml" in server.log_tail() and "there is a template agent already" in server.log_tail()
