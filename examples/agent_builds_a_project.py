"""An agent builds a small web project: it writes files, installs, tests, repairs and serves.

The agent here is a list of steps, so that this runs without a model, a key or a network. Where a
model would decide, `steps()` does; all else (the loop, the tools, the sandbox) is what a real agent
needs.

    pip install e2b
    eval "$(sudo cat /var/lib/soulbox/env)"
    python3 examples/agent_builds_a_project.py           # --keep: leave the sandbox for a browser
"""

import io
import os
import sys
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Generator

from e2b import CommandExitException, Sandbox

# --- What the agent may do. A model gets these as its tools. ---


def write(sandbox: Sandbox, path: str, text: str) -> str:
    sandbox.files.write(f"project/{path}", text)
    return f"{len(text)} characters"


def edit(sandbox: Sandbox, path: str, old: str, new: str) -> str:
    text = sandbox.files.read(f"project/{path}")
    if text.count(old) != 1:
        return f"not changed: the text is there {text.count(old)} times"
    sandbox.files.write(f"project/{path}", text.replace(old, new))
    return "changed"


def run(sandbox: Sandbox, command: str) -> str:
    """A failure is something to read and react to, like any other output."""
    try:
        done = sandbox.commands.run(command, cwd="/home/user/project", timeout=120)
    except CommandExitException as failed:
        done = failed
    return f"exit code {done.exit_code}\n{done.stdout}{done.stderr}"


def serve(sandbox: Sandbox, command: str, port: int) -> str:
    """Starts it in the background, and answers with the page once it is there."""
    sandbox.commands.run(command, cwd="/home/user/project", background=True, timeout=0)
    end = time.monotonic() + 30
    while True:
        try:
            return fetch(sandbox, port)
        except urllib.error.URLError as error:
            if time.monotonic() > end:
                return f"no answer on port {port}: {error}"
            time.sleep(0.1)


TOOLS = {"write": write, "edit": edit, "run": run, "serve": serve}


def fetch(sandbox: Sandbox, port: int) -> str:
    """What a port inside answers. Two headers say which sandbox and port: no DNS is needed."""
    request = urllib.request.Request(
        os.environ["E2B_SANDBOX_URL"] + "/",
        headers={"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": str(port)},
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.read().decode()


# --- What it decides. Here it is a list; yours asks a model. ---

SHOP = '''\
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tinyhtml import page

PRICES = {"bread": 350, "milk": 120, "apples": 735}


def euros(cents):
    return f"{cents // 100}.{cents % 100} €"


def total():
    return euros(sum(PRICES.values()))


class Shop(BaseHTTPRequestHandler):
    def do_GET(self):
        lines = [f"{name}: {euros(price)}" for name, price in PRICES.items()]
        body = page("Shop", [*lines, f"total: {total()}"]).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", 8000), Shop).serve_forever()
'''

TESTS = '''\
import unittest

import shop


class Prices(unittest.TestCase):
    def test_cents_have_two_digits(self):
        self.assertEqual(shop.euros(5), "0.05 €")

    def test_the_total(self):
        self.assertEqual(shop.total(), "12.05 €")
'''

Call = tuple[str, dict]


def steps() -> Generator[Call, str, None]:
    """Yields the next call and gets what came of it. A model would be asked here."""
    yield "write", {"path": "requirements.txt", "text": "tinyhtml==1.0\n"}
    yield "write", {"path": "shop.py", "text": SHOP}
    yield "write", {"path": "test_shop.py", "text": TESTS}
    install = ".venv/bin/pip install -q --no-index --find-links wheels -r requirements.txt"
    seen = yield "run", {"command": f"python3 -m venv .venv && {install}"}
    if not seen.startswith("exit code 0"):
        raise SystemExit(f"the packages could not be installed: {seen}")
    test = ".venv/bin/python -m unittest -q"
    seen = yield "run", {"command": test}
    if "'12.5 €' != '12.05 €'" in seen:
        yield "edit", {"path": "shop.py", "old": "{cents % 100} €", "new": "{cents % 100:02} €"}
        seen = yield "run", {"command": test}
    if not seen.startswith("exit code 0"):
        raise SystemExit(f"the tests fail: {seen}")
    yield "serve", {"command": ".venv/bin/python shop.py", "port": 8000}


# --- What it may use: a package of yours, as a wheel. With internet access pip would fetch others. ---


def wheel() -> bytes:
    """`tinyhtml` 1.0: a wheel is a zip of the package and three files about it."""
    info = "tinyhtml-1.0.dist-info"
    files = {
        "tinyhtml.py": (
            "from html import escape\n\n\n"
            "def page(title, items):\n"
            "    rows = ''.join(f'<li>{escape(each)}</li>' for each in items)\n"
            "    return f'<title>{escape(title)}</title><ul>{rows}</ul>'\n"
        ),
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: tinyhtml\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: example\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return packed.getvalue()


# --- The loop ---


def work(sandbox: Sandbox) -> None:
    agent, seen = steps(), None
    while True:
        try:
            tool, arguments = agent.send(seen)
        except StopIteration:
            return
        seen = TOOLS[tool](sandbox, **arguments)
        what = arguments.get("path") or arguments["command"]
        print(f"{tool} {what}\n    -> {seen.strip().splitlines()[0]}")


# Nothing that it writes or installs can reach the internet, your network or this machine.
sandbox = Sandbox.create(timeout=600, allow_internet_access=False, metadata={"example": "agent"})
try:
    sandbox.files.write("project/wheels/tinyhtml-1.0-py3-none-any.whl", wheel())
    work(sandbox)
    if "--keep" in sys.argv:
        print("in a browser, for ten minutes: soulbox open", sandbox.sandbox_id, "8000")
finally:
    if "--keep" not in sys.argv:
        sandbox.kill()
