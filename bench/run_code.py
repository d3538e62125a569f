#!/usr/bin/env python3
"""`run_code('1+1')` beside a plain Jupyter round trip to the same kernel, and create to first result.

    SOULBOX_BIN=target/release/soulbox python bench/run_code.py [--rounds 100] [--json FILE]

In one run, on one server that this script starts, with the built-in template `code-interpreter-v1`
(built first when the data folder does not have it: give `--data DIR` to keep it):

- run_code: the PyPI client `e2b-code-interpreter`, over loopback, proxy, interpreter and kernel
- jupyter: `jupyter_client` inside the same sandbox, straight to a kernel of its own from the same
  parent: the execute request, and every message until the kernel is idle again. What run_code adds
  to it is the price of the client, the proxy and the interpreter
- create + first result: `Sandbox.create()` and `run_code('1+1')`; the first ones are cold, the rest
  are served by sandboxes that wait

The two take turns, so that a slow moment of the machine meets both.
"""

import argparse
import json
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
    print(f"{name:34} p50 {found['p50']:8.1f}  p90 {found['p90']:8.1f}  p99 {found['p99']:8.1f} ms  (n={found['rounds']})")


def jupyter_times(box: Sandbox, rounds: int) -> list[float]:
    """To a context of its own, so that both kernels are of the same kind and apart."""
    box.create_code_context()
    box.files.write("/tmp/jupyter_times.py", JUPYTER.replace("ROUNDS", str(rounds)))
    done = box.commands.run("python3 /tmp/jupyter_times.py", user="root", timeout=300)
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--creates", type=int, default=20)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="soulbox-bench-"))
    server = Server(options.data or scratch / "data", extra=["--log", "warn", "--warm", "4"]).start()
    found: dict[str, dict[str, float]] = {}
    try:
        built = server.cli("template", "build", "--builtin", TEMPLATE, timeout=1800)
        if built.returncode != 0:
            sys.exit(f"the template could not be built:\n{built.stderr.decode()[-2000:]}")
        box = Sandbox.create(timeout=1800, **server.sdk)
        for _ in range(5):
            box.run_code("1+1")
        calls, plain = [], []
        half = max(1, options.rounds // 2)
        for _ in range(2):
            for _ in range(half):
                begun = time.perf_counter()
                assert box.run_code("1+1").text == "2"
                calls.append(time.perf_counter() - begun)
            plain += jupyter_times(box, half)
        box.kill()
        found["run_code('1+1')"] = figures(calls)
        found["jupyter_client, same kernel"] = figures(plain)
        creates = []
        for _ in range(options.creates):
            begun = time.perf_counter()
            box = Sandbox.create(timeout=300, **server.sdk)
            assert box.run_code("1+1").text == "2"
            creates.append(time.perf_counter() - begun)
            box.kill()
            # The pool is given time to follow: this measures warm creates, not its speed.
            time.sleep(3)
        found["create + first result"] = figures(creates)
    finally:
        server.finish()
    for name, each in found.items():
        show(name, each)
    added = found["run_code('1+1')"]["p50"] - found["jupyter_client, same kernel"]["p50"]
    print(f"run_code adds {added:.1f} ms (p50) to a plain Jupyter round trip")
    if options.json:
        options.json.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
