#!/usr/bin/env python3
"""How many sandboxes one server takes here, what each uses of the host, and what is left after them.

    SOULBOX_BIN=target/release/soulbox python bench/many_sandboxes.py --steps 100,1000,2000,4000

Needs root and the packages of tests/requirements.txt. A server of its own on a folder of its own,
asked as an SDK asks it: REST for creates, envd's Connect protocol through the proxy for commands.
At each step the last 50 creates are done one after the other and timed, then 200 commands in
sandboxes chosen at random (with a seed); the others are made four at a time. Memory is the
difference of /proc/meminfo to the moment before the first sandbox, divided by their number.
Stops early, and says why, when a create fails, memory or disk runs short, or time is up. In the end
each sandbox is asked for a command, all are destroyed, and what can be counted is counted again.
"""

import argparse
import collections
import concurrent.futures
import http.client
import json
import os
import random
import shutil
import socket
import struct
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1] / "tests")]

from host_limits import loops, machine, memory, number, print_limits, remove_loops  # noqa: E402
from support.server import Server, binary  # noqa: E402

TIMED = 50
ASKED = 200
LEAST_MIB = 4_096
LEAST_DISK_MIB = 8_192
KEYS = ("Slab", "Percpu", "KernelStack", "PageTables", "AnonPages", "Shmem", "Buffers", "Cached")


class Client(threading.local):
    """One kept connection per thread."""

    def __init__(self, server: Server) -> None:
        self.port, self.key, self.kept = server.http_port, server.key, None

    def call(self, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, bytes]:
        if self.kept is None:
            self.kept = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
            self.kept.connect()
            self.kept.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            if "e2b-sandbox-id" not in named:  # with a key it would be for the API
                named["X-API-Key"] = self.key
            self.kept.request(method, path, body, {"content-type": "application/json"} | named)
            answer = self.kept.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException):
            self.kept = None
            raise

    def create(self) -> dict:
        status, text = self.call("POST", "/v2/sandboxes", json.dumps({"templateID": "base", "timeout": 3600}).encode())
        if status != 201:
            raise RuntimeError(f"create: {status} {text[:400].decode(errors='replace')}")
        return json.loads(text)

    def echo(self, sandbox: dict) -> None:
        message = json.dumps({"process": {"cmd": "/bin/echo", "args": ["hello"], "envs": {}}, "stdin": False}).encode()
        status, text = self.call(
            "POST", "/process.Process/Start", b"\0" + struct.pack(">I", len(message)) + message,
            content_type="application/connect+json", connect_protocol_version="1",
            e2b_sandbox_id=sandbox["sandboxID"], e2b_sandbox_port="49983",
            x_access_token=sandbox.get("envdAccessToken") or "", authorization="Basic dXNlcjo=",
        )  # fmt: skip
        if status != 200 or b"aGVsbG8K" not in text:
            raise RuntimeError(f"exec: {status} {text[:400]!r}")

    def kill(self, sandbox: dict) -> None:
        status, text = self.call("DELETE", f"/sandboxes/{sandbox['sandboxID']}")
        if status not in (204, 404):
            raise RuntimeError(f"kill: {status} {text[:400]!r}")


def timed(action, *arguments) -> float:
    began = time.perf_counter()
    action(*arguments)
    return time.perf_counter() - began


def percentiles(times: list[float]) -> str:
    ranked = sorted(times)
    at = lambda share: ranked[min(len(ranked) - 1, int(len(ranked) * share))] * 1e3  # noqa: E731
    return f"{at(0.5):.1f} / {at(0.9):.1f} / {at(0.99):.1f}"


def processes_of(tag: str) -> list[int]:
    found = []
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        try:
            if f"soulbox-{tag}/" in Path(f"/proc/{pid}/cgroup").read_text():
                found.append(pid)
        except OSError:
            continue
    return found


def descriptors(pid: int) -> collections.Counter:
    kinds = collections.Counter()
    try:
        for each in os.scandir(f"/proc/{pid}/fd"):
            target = os.readlink(each.path)
            kinds[target.split(":")[0] if ":" in target and not target.startswith("anon") else target] += 1
    except OSError:
        pass
    return kinds


def lines(path: str) -> int:
    try:
        return len(Path(path).read_text().splitlines())
    except OSError:
        return 0


def counts(server: Server) -> dict[str, int]:
    """All that a sandbox may use of the host, by name."""
    tag = json.loads((server.data / "instance.json").read_text())["tag"]
    inside = processes_of(tag)
    folders = [place for place, *_ in os.walk("/sys/fs/cgroup") if f"/soulbox-{tag}" in place]
    backing = [each.read_text() for each in Path("/sys/block").glob("loop*/loop/backing_file")]
    kinds = [descriptors(pid) for pid in inside]
    first = Path("/proc/net/stat/arp_cache").read_text().splitlines()[1].split()[0]
    disks = (server.data / "sandboxes").rglob("*")
    alive = server.process is not None and server.process.poll() is None
    return {
        "state folders": len(os.listdir(server.data / "sandboxes")),
        "processes": len(inside),
        "threads": sum(len(os.listdir(f"/proc/{pid}/task")) for pid in inside if Path(f"/proc/{pid}").exists()),
        "descriptors inside": sum(sum(each.values()) for each in kinds),
        "inotify instances": sum(each["anon_inode:inotify"] for each in kinds),
        "mounts in their namespaces": sum(lines(f"/proc/{pid}/mountinfo") for pid in inside),
        "mounts of the host": lines("/proc/self/mountinfo"),
        "links on the host": len(list(Path("/sys/class/net").glob(f"sb{tag}*"))),
        "cgroups, all hierarchies": len(folders),
        "loop devices": sum(each.startswith(str(server.data)) for each in backing),
        "descriptors of the server": sum(descriptors(server.pid).values()) if alive else 0,
        "threads of the server": len(os.listdir(f"/proc/{server.pid}/task")) if alive else 0,
        "KiB of disk": sum(each.stat().st_blocks // 2 for each in disks if each.is_file() and not each.is_symlink()),
        "open files of the machine": number("/proc/sys/fs/file-nr"),
        "tracked connections of the machine": number("/proc/sys/net/netfilter/nf_conntrack_count") or 0,
        "neighbours of the machine": int(first, 16),
    }


def differences(before: dict, after: dict, many: int) -> str:
    return "\n".join(f"| {name} | {before[name]:,} | {after[name]:,} | {(after[name] - before[name]) / many:.2f} |" for name in before)


def push(server: Server, steps: list[int], minutes: float) -> None:
    client, stop = Client(server), time.monotonic() + minutes * 60
    chosen = random.Random(1)
    first = client.create()
    client.echo(first)
    client.kill(first)
    time.sleep(2)
    zero, nothing = memory(), counts(server)
    alive: list[dict] = []
    pool = concurrent.futures.ThreadPoolExecutor(4)

    def why_not() -> str | None:
        if (memory()["MemAvailable"] >> 10) < LEAST_MIB:
            return f"less than {LEAST_MIB} MiB of memory available"
        if shutil.disk_usage(server.data).free >> 20 < LEAST_DISK_MIB:
            return f"less than {LEAST_DISK_MIB} MiB of disk free"
        return "the time is up" if time.monotonic() > stop else None

    print("Times in ms: p50 / p90 / p99. KiB per sandbox, and of that:\n")
    heads = ["sandboxes", "create", "exec", "made in", "MemAvailable", *KEYS, "server's RSS"]
    print("| " + " | ".join(heads) + " |\n|" + "---|" * len(heads), flush=True)
    problem = None
    for step in steps:
        began, creates, execs = time.monotonic(), [], []
        try:
            while len(alive) < step - TIMED and not problem:
                batch = [pool.submit(client.create) for _ in range(min(100, step - TIMED - len(alive)))]
                failed = []
                for each in batch:
                    try:
                        alive.append(each.result())
                    except (RuntimeError, OSError, http.client.HTTPException) as error:
                        failed.append(error)
                if failed:
                    raise failed[0]
                problem = why_not()
            made = time.monotonic() - began
            while len(alive) < step and not problem:
                creates.append(timed(lambda: alive.append(client.create())))
            execs.extend(timed(client.echo, each) for each in chosen.choices(alive, k=ASKED))
        except (RuntimeError, OSError, http.client.HTTPException) as error:
            problem, made = str(error), time.monotonic() - began
        time.sleep(2)
        now = memory()
        many = max(1, len(alive))
        rss = number(f"/proc/{server.pid}/statm", 1) or 0
        row = [
            f"{len(alive):,}", percentiles(creates) if creates else "–", percentiles(execs) if execs else "–",
            f"{made:.0f} s", f"{(zero['MemAvailable'] - now['MemAvailable']) / many:,.0f}",
            *(f"{(now[key] - zero[key]) / many:,.0f}" for key in KEYS), f"{rss * 4 / 1024:,.0f} MiB",
        ]  # fmt: skip
        print("| " + " | ".join(row) + " |", flush=True)
        if problem:
            print(f"\nStopped at {len(alive):,}: {problem}", flush=True)
            break
    after = counts(server)
    print(f"\n| with {len(alive):,} sandboxes | before | now | each |\n|---|---|---|---|\n{differences(nothing, after, len(alive) or 1)}\n")
    kinds = descriptors(server.pid)
    print("Descriptors of the server: " + ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common(8)) + "\n")
    print_limits(server.pid)
    finish(client, pool, server, alive, nothing)


def finish(client: Client, pool, server: Server, alive: list[dict], nothing: dict) -> None:
    for verb, action in (("answered a command", client.echo), ("destroyed", client.kill)):
        began, errors = time.monotonic(), collections.Counter()
        for each in [pool.submit(timed, action, one) for one in alive]:
            try:
                each.result()
            except (RuntimeError, OSError, http.client.HTTPException) as error:
                errors[str(error)[:200]] += 1
        took = time.monotonic() - began
        print(f"\n{len(alive) - errors.total():,} of {len(alive):,} {verb}, four at a time, in {took:.1f} s", flush=True)
        for text, count in errors.most_common(5):
            print(f"  {count} × {text}")
    pool.shutdown()
    # Namespaces and loop devices go some time after their last process.
    ours = [name for name in nothing if not name.endswith(("machine", "server", "host")) or name.startswith("links")]
    began = time.monotonic()
    while time.monotonic() - began < 120:
        end = counts(server)
        if all(end[name] <= nothing[name] for name in ours):
            print(f"All that was counted is back to what it was {time.monotonic() - began:.1f} s after the last answer.")
            break
        time.sleep(1)
    else:
        print("Left after 120 s: " + ", ".join(f"{end[name] - nothing[name]} {name}" for name in ours if end[name] > nothing[name]))
    print(f"\n| after all were destroyed | before | now | |\n|---|---|---|---|\n{differences(nothing, end, 1)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", default="100,1000,2000,4000")
    parser.add_argument("--minutes", type=float, default=15)
    parser.add_argument("--warm", type=int, default=0)
    options = parser.parse_args()
    scratch, before = Path(tempfile.mkdtemp(prefix="soulbox-many-")), loops()
    extra = ["--log", "warn", "--max-sandboxes", "4096"]
    server = Server(scratch / "data", extra=extra, environment={"SOULBOX_WARM": str(options.warm)})
    print(f"{machine()}; {binary().name}\n")
    try:
        server.start()
        push(server, [int(each) for each in options.steps.split(",")], options.minutes)
    finally:
        server.finish()
        log = server.log_tail() if server.log.exists() else ""
        print(f"\nThe server's last words:\n{log}")
        shutil.rmtree(scratch, ignore_errors=True)
        if left := remove_loops(before):
            print(left)


if __name__ == "__main__":
    main()
