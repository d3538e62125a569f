"""`soulbox serve` as a package has installed it, and what it leaves."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Callable

import httpx
from e2b import Sandbox

from support.server import free_ports, read_env_file
from support.waiting import eventually

READY_WITHIN = 90.0
STOP_WITHIN = 30.0


class Serving:
    """`start` makes a process of the options that it is given; it may be a wrapper of the server."""

    def __init__(self, data: Path, start: Callable[[dict[str, str]], subprocess.Popen], log: Path) -> None:
        self.data, self._start, self.log = data, start, log
        self.ports = free_ports(3)
        self.process: subprocess.Popen | None = None

    @property
    def settings(self) -> dict[str, str]:
        http, https, admin = (f"127.0.0.1:{port}" for port in self.ports)
        return {"SOULBOX_LISTEN": http, "SOULBOX_HTTPS": https, "SOULBOX_ADMIN": admin, "SOULBOX_WARM": "0"}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.ports[0]}"

    @property
    def sdk(self) -> dict[str, str]:
        key = read_env_file(self.data / "env")["E2B_API_KEY"]
        return {"api_key": key, "api_url": self.url, "sandbox_url": self.url}

    @property
    def tag(self) -> str:
        return json.loads((self.data / "instance.json").read_text())["tag"]

    def start(self) -> "Serving":
        self.process = process = self._start(self.settings)

        def ready() -> bool:
            assert process.poll() is None, f"the server ended with {process.returncode}:\n{self.log_tail()}"
            try:
                return httpx.get(f"{self.url}/health", timeout=2).is_success
            except httpx.TransportError:
                return False

        try:
            eventually(ready, within=READY_WITHIN, what="GET /health answers")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log_tail()}") from error
        return self

    def stop(self) -> None:
        """Politely: sandboxes stay. The server itself is asked, however it was started."""
        assert self.process is not None
        os.kill(self.server_pid(), signal.SIGTERM)
        self.process.wait(STOP_WITHIN)

    def server_pid(self) -> int:
        """The process started, or the one below it that is the server."""
        assert self.process is not None
        pid = self.process.pid
        # Its file may have been removed, or renamed, since.
        while not os.path.basename(os.readlink(f"/proc/{pid}/exe")).startswith("soulbox"):
            pid = int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
        return pid

    def end(self) -> None:
        """After a failure: whatever is left."""
        if self.process is not None and self.process.poll() is None:
            try:
                for each in Sandbox.list(**self.sdk).next_items():
                    Sandbox.kill(each.sandbox_id, **self.sdk)
                self.stop()
            except Exception:  # the test's own failure is the one to show
                self.process.kill()
                self.process.wait(STOP_WITHIN)

    def log_tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-30:]) if self.log.exists() else ""


class LiveSandbox:
    """One that works on while programs are exchanged."""

    def __init__(self, serving: Serving) -> None:
        self.sandbox = Sandbox.create(timeout=600, **serving.sdk)
        self.sandbox.files.write("kept", "written before")
        self.worker = self.sandbox.commands.run(
            "i=0; while :; do i=$((i+1)); echo $i > ticks; sleep 0.1; done", background=True, timeout=0
        )
        eventually(lambda: self.sandbox.files.exists("ticks"))

    def goes_on(self) -> None:
        assert self.sandbox.files.read("kept") == "written before"
        assert self.worker.pid in [each.pid for each in self.sandbox.commands.list()]
        before = self._ticks()
        eventually(lambda: self._ticks() > before, what="its process works on")
        assert self.sandbox.commands.run("echo a new command").stdout == "a new command\n"

    def _ticks(self) -> int:
        return int(self.sandbox.files.read("ticks") or 0)


def left_on_the_machine(tag: str, folder: Path) -> list[str]:
    """What is still there of the server with this tag, whose data folder is in `folder`."""
    groups = [
        os.path.join(top, name) for top, names, _ in os.walk("/sys/fs/cgroup") for name in names if f"soulbox-{tag}" in name
    ]
    links = [name for name in os.listdir("/sys/class/net") if tag in name]
    tables = [line for line in _output("nft", "list", "tables").splitlines() if tag in line]
    loops = [str(each) for each in Path("/sys/block").glob("loop*/loop/backing_file") if str(folder) in each.read_text()]
    processes = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            exe = os.readlink(f"/proc/{pid}/exe")
        except OSError:
            continue
        if exe.startswith(str(folder)):
            processes.append(f"{pid} {exe}")
    return groups + links + tables + loops + processes


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout
