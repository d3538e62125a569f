"""A real `soulbox serve` on a data folder of its own."""

import os
import random
import shlex
import signal
import socket
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from support.waiting import eventually

PROJECT = Path(__file__).resolve().parents[2]
READY_WITHIN = 60.0
STOP_WITHIN = 30.0


def binary() -> Path:
    path = Path(os.environ.get("SOULBOX_BIN", PROJECT / "target" / "debug" / "soulbox"))
    if not path.exists():
        raise RuntimeError(f"{path} is not built: run `cargo build -p soulbox`, or set SOULBOX_BIN")
    return path


def clean_environment() -> dict[str, str]:
    """Ours, without what would steer a client or the server elsewhere."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("E2B_", "SOULBOX_"))
    }


def free_ports(count: int) -> list[int]:
    """Below those of the kernel's choice: an outgoing connection, or another lane of tests, could
    have one of these before the server that it is meant for, or while that one is restarted."""
    first_of_the_kernels = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    candidates = random.SystemRandom().sample(range(10_000, max(first_of_the_kernels, 20_000)), 1000)
    ports: list[int] = []
    for port in candidates:
        try:
            socket.create_server(("127.0.0.1", port)).close()
            ports.append(port)
        except OSError:  # somebody has it
            continue
        if len(ports) == count:
            return ports
    raise RuntimeError(f"of {len(candidates)} ports only {len(ports)} are free")


def read_env_file(path: Path) -> dict[str, str]:
    """Reads `export NAME=value` lines as a shell would."""
    values = {}
    for line in path.read_text().splitlines():
        words = shlex.split(line, comments=True)
        if len(words) == 2 and words[0] == "export":
            name, _, value = words[1].partition("=")
            values[name] = value
    return values


@dataclass
class Server:
    data: Path
    domain: str = "sbx.localhost"
    extra: list[str] = field(default_factory=list)
    # No waiting sandboxes unless a test asks for them: many tests count what is there.
    environment: dict[str, str] = field(default_factory=lambda: {"SOULBOX_WARM": "0"})
    # What starts it, such as `prlimit`; it must become the server itself.
    starter: list[str] = field(default_factory=list)
    process: subprocess.Popen | None = None

    def __post_init__(self) -> None:
        self.http_port, self.https_port, self.admin_port = free_ports(3)
        self.log = self.data.parent / f"{self.data.name}.log"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"

    @property
    def admin_url(self) -> str:
        return f"http://127.0.0.1:{self.admin_port}"

    @property
    def tls_domain(self) -> str:
        return f"{self.domain}:{self.https_port}"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def env(self) -> dict[str, str]:
        return read_env_file(self.data / "env")

    @property
    def env_tls(self) -> dict[str, str]:
        return read_env_file(self.data / "env.tls")

    @property
    def key(self) -> str:
        return self.env["E2B_API_KEY"]

    @property
    def ca(self) -> Path:
        return Path(self.env_tls["SSL_CERT_FILE"])

    @property
    def sdk(self) -> dict[str, str]:
        """Options of the Python clients for the plain HTTP mode."""
        return {"api_key": self.key, "api_url": self.url, "sandbox_url": self.url}

    @property
    def sdk_tls(self) -> dict[str, str]:
        return {"api_key": self.key, "domain": self.tls_domain}

    def command(self) -> list[str]:
        return [
            *self.starter,
            str(binary()),
            "serve",
            "--listen", f"127.0.0.1:{self.http_port}",
            "--https", f"127.0.0.1:{self.https_port}",
            "--admin", f"127.0.0.1:{self.admin_port}",
            "--domain", self.domain,
            "--data-dir", str(self.data),
            *self.extra,
        ]  # fmt: skip

    def spawn(self) -> subprocess.Popen:
        """Starts it without waiting for readiness."""
        assert self.process is None or self.process.poll() is not None
        log = open(self.log, "ab")
        self.process = subprocess.Popen(
            self.command(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=clean_environment() | self.environment,
            start_new_session=True,
        )
        log.close()
        return self.process

    def start(self, within: float = READY_WITHIN) -> "Server":
        process = self.spawn()

        def ready() -> bool:
            if process.poll() is not None:
                raise RuntimeError(f"the server ended with {process.returncode}:\n{self.log_tail()}")
            try:
                return httpx.get(f"{self.url}/health", timeout=2).is_success
            except httpx.TransportError:
                return False

        try:
            eventually(ready, within=within, what="GET /health answers")
        except AssertionError as error:
            self.kill9()
            raise AssertionError(f"{error}\n{self.log_tail()}") from error
        return self

    def kill9(self) -> None:
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait(STOP_WITHIN)

    def terminate(self) -> int:
        """Asks it to stop; sandboxes stay, as after an upgrade."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(STOP_WITHIN)

    def finish(self) -> None:
        """Ends every sandbox, then the server."""
        if self.process is None:
            return
        if self.process.poll() is None:
            try:
                self.remove_all_sandboxes()
            except (httpx.HTTPError, OSError):
                pass
            self.process.terminate()
            try:
                self.process.wait(STOP_WITHIN)
            except subprocess.TimeoutExpired:
                self.kill9()

    def remove_all_sandboxes(self) -> None:
        with self.api() as api:
            end = time.monotonic() + 60
            while time.monotonic() < end:
                listed = api.get("/v2/sandboxes").json()
                if not listed:
                    return
                for each in listed:
                    api.delete(f"/sandboxes/{each['sandboxID']}")

    def api(self, key: str | None = None, **options) -> httpx.Client:
        headers = {"X-API-Key": key or self.key}
        return httpx.Client(base_url=self.url, headers=headers, **{"timeout": 30} | options)

    def cli(self, *words: str, input: bytes | None = None, timeout: float = 60, env=None):
        return subprocess.run(
            [str(binary()), *words],
            input=input,
            stdin=subprocess.DEVNULL if input is None else None,
            capture_output=True,
            timeout=timeout,
            env=clean_environment() | self.env | (env or {}),
        )

    def log_tail(self, lines: int = 40) -> str:
        if not self.log.exists():
            return ""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


@contextmanager
def attach(server: Server, sandbox, pid: int):
    """`soulbox attach`, ended with the block."""
    watching = subprocess.Popen(
        [str(binary()), "attach", sandbox.sandbox_id, str(pid)],
        env=clean_environment() | server.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        yield watching
    finally:
        if watching.poll() is None:
            watching.kill()
        watching.wait(10)
        watching.stdout.close()
        watching.stderr.close()
