#!/usr/bin/env python3
"""From nothing to the first output of `echo`, side by side on this machine.

    SOULBOX_BIN=target/release/soulbox python bench/first_output.py [--rounds 50] [--json FILE]

Each way starts from nothing every time and is timed until the word has arrived in this process:

- soulbox: `Sandbox.create()` and `commands.run("echo …")` of the PyPI client `e2b` over loopback,
  against a server that this script starts; the sandbox is killed outside the measured time
- docker: `docker run --rm IMAGE echo …`, against the daemon that runs here or, given
  `--dockerd PATH`, one that this script starts on a data folder of its own
- bwrap: bubblewrap with new user, pid, net, mount, ipc and uts namespaces over the host's /usr
- clone: `unshare` with the same namespaces and nothing else; the floor
- bare: the command alone

Rounds of the ways alternate, so that a slow moment of the machine meets all of them. What is not
there is skipped with the reason.
"""

import argparse
import glob
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support.server import Server  # noqa: E402
from support.waiting import eventually  # noqa: E402

WORD = "hello"
IMAGE = "soulbox-bench:busybox"


class Skip(Exception):
    pass


class Soulbox:
    """create → first output, and the two parts of it."""

    name = "soulbox (e2b client)"

    def __init__(self, scratch: Path) -> None:
        from e2b import Sandbox

        self.make = Sandbox.create
        self.server = Server(scratch / "data", extra=["--log", "warn"]).start()
        self.options = self.server.sdk

    def run(self) -> float:
        begun = time.perf_counter()
        sandbox = self.make(timeout=60, **self.options)
        out = sandbox.commands.run(f"echo {WORD}").stdout
        took = time.perf_counter() - begun
        assert out == f"{WORD}\n", out
        sandbox.kill()
        return took

    def close(self) -> None:
        self.server.finish()


class SoulboxCreate(Soulbox):
    """Only `Sandbox.create()`."""

    name = "soulbox, create alone"

    def __init__(self, other: Soulbox) -> None:
        self.make, self.options = other.make, other.options

    def run(self) -> float:
        begun = time.perf_counter()
        sandbox = self.make(timeout=60, **self.options)
        took = time.perf_counter() - begun
        sandbox.kill()
        return took

    def close(self) -> None:
        pass


class Program:
    """A command line that prints the word."""

    def __init__(self, name: str, command: list[str]) -> None:
        if shutil.which(command[0]) is None:
            raise Skip(f"{command[0]} is not installed")
        self.name, self.command = name, command
        try:
            self.run()
        except (subprocess.SubprocessError, AssertionError) as error:
            raise Skip(f"does not work here: {error}") from error

    def run(self) -> float:
        begun = time.perf_counter()
        done = subprocess.run(self.command, capture_output=True, text=True, timeout=60, check=True)
        took = time.perf_counter() - begun
        assert done.stdout == f"{WORD}\n", done
        return took

    def close(self) -> None:
        pass


class Docker(Program):
    """`docker run`; with a daemon of its own when one is given."""

    def __init__(self, scratch: Path, dockerd: str | None) -> None:
        self.daemon: subprocess.Popen | None = None
        docker = shutil.which("docker", path=f"{os.path.dirname(dockerd)}:{os.environ['PATH']}" if dockerd else None)
        if docker is None:
            raise Skip("docker is not installed")
        self.docker = [docker]
        try:
            if dockerd:
                self._start(scratch, dockerd)
            if subprocess.run([*self.docker, "info"], capture_output=True, timeout=30).returncode != 0:
                raise Skip("no Docker daemon answers; --dockerd PATH starts one")
            self._import(scratch)
            self.command = [*self.docker, "run", "--rm", IMAGE, "echo", WORD]
            super().__init__("docker run", self.command)
        except BaseException:
            self.close()
            raise

    def _start(self, scratch: Path, dockerd: str) -> None:
        socket = f"unix://{scratch}/docker.sock"
        path = f"{os.path.dirname(dockerd)}:{os.path.dirname(dockerd)}/../bin:{os.environ['PATH']}:/usr/sbin:/sbin"
        self.log = open(scratch / "dockerd.log", "wb")
        self.daemon = subprocess.Popen(
            [dockerd, "-H", socket, "--data-root", f"{scratch}/docker", "--exec-root", f"{scratch}/docker-run",
             "--pidfile", f"{scratch}/docker.pid", "--bridge", "none", "--iptables=false"],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT, env=os.environ | {"PATH": path},
        )  # fmt: skip
        self.docker += ["-H", socket]
        self.cgroups_before = set(docker_cgroups())

        def up() -> bool:
            if self.daemon.poll() is not None:
                last = (scratch / "dockerd.log").read_text(errors="replace").splitlines()[-1:]
                raise Skip(f"dockerd does not start here: {last}")
            return subprocess.run([*self.docker, "info"], capture_output=True, timeout=30).returncode == 0

        eventually(up, within=60, every=0.2, what="dockerd answers")

    def _import(self, scratch: Path) -> None:
        """An image of one static busybox, so that nothing is pulled."""
        busybox = os.environ.get("BUSYBOX") or shutil.which("busybox")
        if not busybox:
            raise Skip("a static busybox is needed for the image (package busybox-static)")
        archive = scratch / "image.tar"
        with tarfile.open(archive, "w") as tar:
            tar.add(busybox, "bin/busybox")
            for name in ("sh", "echo"):
                link = tarfile.TarInfo(f"bin/{name}")
                link.type, link.linkname = tarfile.SYMTYPE, "busybox"
                tar.addfile(link)
        subprocess.run([*self.docker, "import", str(archive), IMAGE], check=True, capture_output=True, timeout=60)

    def close(self) -> None:
        if self.daemon is not None:
            self.daemon.terminate()
            self.daemon.wait(30)
            self.log.close()
            self.daemon = None
            for left in set(docker_cgroups()) - self.cgroups_before:
                os.rmdir(left)
        elif getattr(self, "command", None):
            subprocess.run([*self.docker, "rmi", IMAGE], capture_output=True, timeout=60)


def docker_cgroups() -> list[str]:
    """The daemon makes them at the first container and leaves them behind."""
    return glob.glob("/sys/fs/cgroup/docker") + glob.glob("/sys/fs/cgroup/*/docker")


def bwrap() -> Program:
    binds = [["--ro-bind", "/usr", "/usr"]] + [
        ["--symlink", f"usr/{name}", f"/{name}"] for name in ("bin", "lib", "lib64") if os.path.islink(f"/{name}")
    ]
    return Program(
        "bwrap",
        ["bwrap", "--unshare-all", *sum(binds, []), "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "echo", WORD],
    )


def percentile(values: list[float], share: float) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[round(share * 100) - 1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--dockerd", help="start this daemon on a data folder of its own")
    parser.add_argument("--json", help="write the figures there as well")
    options = parser.parse_args()

    scratch = Path(tempfile.mkdtemp(prefix="soulbox-bench-"))
    ways, skipped = [], []

    def add(name: str, make) -> None:
        try:
            ways.append(make())
        except Skip as reason:
            skipped.append((name, str(reason)))

    try:
        add("soulbox", lambda: Soulbox(scratch))
        add("soulbox, create alone", lambda: SoulboxCreate(ways[0]))
        add("docker run", lambda: Docker(scratch, options.dockerd))
        add("bwrap", bwrap)
        add("unshare", lambda: Program("clone of namespaces (unshare)", ["unshare", "-Umnipuf", "--map-root-user", "echo", WORD]))
        add("bare", lambda: Program("bare command", ["echo", WORD]))
        times: dict[str, list[float]] = {way.name: [] for way in ways}
        for round_number in range(options.rounds + 3):
            for way in ways:
                took = way.run()
                if round_number >= 3:  # the first ones warm caches
                    times[way.name].append(took)
    finally:
        for way in reversed(ways):
            way.close()
        shutil.rmtree(scratch, ignore_errors=True)

    print(f"{options.rounds} rounds, alternating; {os.cpu_count()} cpus, Linux {platform.release()}; milliseconds\n")
    print("| from nothing to the first output of `echo` | p50 | p90 | least |\n|---|---|---|---|")
    figures = {}
    for name, values in times.items():
        p50, p90, least = (1000 * each for each in (percentile(values, 0.5), percentile(values, 0.9), min(values)))
        figures[name] = {"p50": p50, "p90": p90, "least": least}
        print(f"| {name} | {p50:.1f} | {p90:.1f} | {least:.1f} |")
    for name, reason in skipped:
        print(f"| {name} | skipped: {reason} | | |")
    if options.json:
        Path(options.json).write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
