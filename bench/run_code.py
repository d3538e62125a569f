#!/usr/bin/env python3
"""`run_code('1+1')` beside a plain Jupyter round trip to the same kernel, and create to first result.

    SOULBOX_BIN=target/release/soulbox python bench/run_code.py [--rounds 100] [--json FILE]
    SOULBOX_BIN=target/release/soulbox python bench/run_code.py --only cold --data DIR

In one run, on servers that this script starts, with the built-in template `code-interpreter-v1`
(built first when the data folder does not have it: give `--data DIR` to keep it):

- run_code: the PyPI client `e2b-code-interpreter`, over loopback, proxy, interpreter and kernel
- jupyter: `jupyter_client` inside the same sandbox, straight to a kernel of its own from the same
  parent: the execute request, and every message until the kernel is idle again. What run_code adds
  to it is the price of the client, the proxy and the interpreter
- create + first result: `Sandbox.create()` and `run_code('1+1')`; the first ones are cold, the rest
  are served by sandboxes that wait
- cold: the same from nothing, on a server that keeps no sandboxes waiting (`--warm 0`): until the
  create has answered, and until the result is there; one at a time, then `--crowd` at once, for which
  the time is that of the last one. The processor time of each is what its cgroup has used when its
  result is there, and its share of what the server's process used meanwhile; the client is not in it,
  nor is anything else that runs on the machine. Before the first one counts, one was made, so that
  files are in memory

The first two take turns, so that a slow moment of the machine meets both.
"""

import argparse
import concurrent.futures
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from e2b_code_interpreter import Sandbox  # noqa: E402
from support.server import Server  # noqa: E402

TEMPLATE = "code-interpreter-v1"
JUPYTER = """
import json, time
from jupyter_client import BlockingKernelClient
import glob, os
connections = sorted(glob.glob('/run/soulbox-interpreter/**/*.json', recursive=True), key=os.path.getmtime)
client = BlockingKernelClient(connection_file=connections[-1])
client.load_connection_file(); client.start_channels(); client.wait_for_ready(timeout=30)
times = []
for _ in range(ROUNDS + 5):
    begun = time.perf_counter()
    client.execute_interactive('1+1', output_hook=lambda message: None, timeout=30)
    times.append(time.perf_counter() - begun)
print(json.dumps(times[5:]))
"""


def figures(times: list[float]) -> dict[str, float]:
    ordered = sorted(each * 1000 for each in times)
    at = lambda share: ordered[min(len(ordered) - 1, int(len(ordered) * share))]  # noqa: E731
    return {"p50": statistics.median(ordered), "p90": at(0.9), "p99": at(0.99), "rounds": len(ordered)}


def show(name: str, found: dict[str, float]) -> None:
    print(f"{name:38} p50 {found['p50']:8.1f}  p90 {found['p90']:8.1f}  p99 {found['p99']:8.1f} ms  (n={found['rounds']})")


def processor_seconds_of_server(server: Server) -> float:
    """With those of its processes that have ended."""
    fields = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


class Accounts:
    """The cgroups of sandboxes: all beside each other, under their sandboxes' names."""

    def __init__(self, example: Sandbox) -> None:
        def folder(file: str) -> Path | None:
            found = Path("/sys/fs/cgroup").glob(f"**/{example.sandbox_id}/{file}")
            return next((path.parents[1] for path in found), None)

        self.unified, self.v1 = folder("cpu.stat"), folder("cpuacct.usage")
        if self.unified is None and self.v1 is None:
            sys.exit("no cgroup under /sys/fs/cgroup is named like the sandbox: its processor time cannot be told")

    def processor_seconds(self, box: Sandbox) -> float:
        if self.v1 is not None:
            return int((self.v1 / box.sandbox_id / "cpuacct.usage").read_text()) / 1e9
        lines = (self.unified / box.sandbox_id / "cpu.stat").read_text().splitlines()
        return int(dict(line.split() for line in lines)["usage_usec"]) / 1e6


def jupyter_times(box: Sandbox, rounds: int) -> list[float]:
    """To a context of its own, so that both kernels are of the same kind and apart."""
    box.create_code_context()
    box.files.write("/tmp/jupyter_times.py", JUPYTER.replace("ROUNDS", str(rounds)))
    done = box.commands.run("python3 /tmp/jupyter_times.py", user="root", timeout=300)
    return json.loads(done.stdout)


def warm(server: Server, rounds: int, creates: int) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    box = Sandbox.create(timeout=1800, **server.sdk)
    for _ in range(5):
        box.run_code("1+1")
    calls, plain = [], []
    half = max(1, rounds // 2)
    for _ in range(2):
        for _ in range(half):
            begun = time.perf_counter()
            assert box.run_code("1+1").text == "2"
            calls.append(time.perf_counter() - begun)
        plain += jupyter_times(box, half)
    box.kill()
    found["run_code('1+1')"] = figures(calls)
    found["jupyter_client, same kernel"] = figures(plain)
    times = []
    for _ in range(creates):
        begun = time.perf_counter()
        box = Sandbox.create(timeout=300, **server.sdk)
        assert box.run_code("1+1").text == "2"
        times.append(time.perf_counter() - begun)
        box.kill()
        # The pool is given time to follow: this measures warm creates, not its speed.
        time.sleep(3)
    found["create + first result"] = figures(times)
    return found


def crowd(server: Server, accounts: Accounts, size: int) -> tuple[float, float, float]:
    """The last create's answer, the last result, and the processor time of each, in seconds."""

    def start(_: int) -> tuple[float, float, float, Sandbox]:
        box = Sandbox.create(timeout=300, **server.sdk)
        created = time.perf_counter() - begun
        assert box.run_code("1+1").text == "2"
        return created, time.perf_counter() - begun, accounts.processor_seconds(box), box

    with concurrent.futures.ThreadPoolExecutor(size) as pool:
        used, begun = processor_seconds_of_server(server), time.perf_counter()
        created, answered, inside, boxes = zip(*pool.map(start, range(size)))
        used = processor_seconds_of_server(server) - used
    for box in boxes:
        box.kill()
    # What is left of them must not meet those that come next.
    time.sleep(1)
    return max(created), max(answered), (sum(inside) + used) / size


def cold(server: Server, rounds: int, size: int) -> dict[str, dict[str, float]]:
    first = Sandbox.create(timeout=300, **server.sdk)
    first.run_code("1+1")
    accounts = Accounts(first)
    first.kill()
    found: dict[str, dict[str, float]] = {}
    for name, each in [("cold", 1), (f"cold, {size} at once", size)]:
        created, answered, used = zip(*(crowd(server, accounts, each) for _ in range(rounds)))
        found[f"{name}: create"] = figures(list(created))
        found[f"{name}: create + first result"] = figures(list(answered))
        found[f"{name}: processor time of each"] = figures(list(used))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--creates", type=int, default=20)
    parser.add_argument("--cold-rounds", type=int, default=10)
    parser.add_argument("--crowd", type=int, default=6)
    parser.add_argument("--only", choices=["warm", "cold"])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    data = options.data or Path(tempfile.mkdtemp(prefix="soulbox-bench-")) / "data"
    parts = {
        "warm": ("4", lambda server: warm(server, options.rounds, options.creates)),
        "cold": ("0", lambda server: cold(server, options.cold_rounds, options.crowd)),
    }
    found: dict[str, dict[str, float]] = {}
    for name in [options.only] if options.only else parts:
        waiting, measure = parts[name]
        server = Server(data, extra=["--log", "warn", "--warm", waiting]).start()
        try:
            built = server.cli("template", "build", "--builtin", TEMPLATE, timeout=1800)
            if built.returncode != 0:
                sys.exit(f"the template could not be built:\n{built.stderr.decode()[-2000:]}")
            found |= measure(server)
        finally:
            server.finish()
    for name, each in found.items():
        show(name, each)
    if "run_code('1+1')" in found:
        added = found["run_code('1+1')"]["p50"] - found["jupyter_client, same kernel"]["p50"]
        print(f"run_code adds {added:.1f} ms (p50) to a plain Jupyter round trip")
    if options.json:
        options.json.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
