"""How much the interpreter adds: the same cell to the same kernel, over HTTP and with jupyter_client.

`latency.py CONNECTION_FILE [ROUNDS]`, on the machine (or in the sandbox) where the interpreter runs; its
connection files are in /run/soulbox-interpreter/kernels/*/. Prints one line of JSON, in milliseconds.
"""

import http.client
import json
import statistics
import sys
import time

from jupyter_client import BlockingKernelClient

CODE = "1 + 1"


def over_http(connection):
    connection.request("POST", "/execute", json.dumps({"code": CODE}))
    lines = connection.getresponse().read().splitlines()
    assert any(json.loads(line).get("text") == "2" for line in lines), lines


def with_jupyter_client(client):
    request = client.execute(CODE)
    while True:
        message = client.get_iopub_msg(timeout=10)
        content = message["content"]
        if message["parent_header"].get("msg_id") != request:
            continue
        if message["msg_type"] == "status" and content["execution_state"] == "idle":
            break
    client.get_shell_msg(timeout=10)


def timed(run, subject):
    start = time.perf_counter()
    run(subject)
    return (time.perf_counter() - start) * 1000


def summary(samples):
    quantiles = statistics.quantiles(samples, n=20)
    return {
        "min": round(min(samples), 2),
        "p50": round(statistics.median(samples), 2),
        "p95": round(quantiles[18], 2),
    }


def main():
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 200
    client = BlockingKernelClient()
    client.load_connection_file(sys.argv[1])
    client.start_channels()
    client.wait_for_ready(timeout=30)
    connection = http.client.HTTPConnection("127.0.0.1", 49999, timeout=30)
    ours, plain = [], []
    for _ in range(rounds):
        # In turn, so that whatever else the machine does is shared by both.
        ours.append(timed(over_http, connection))
        plain.append(timed(with_jupyter_client, client))
    added = statistics.median(ours) - statistics.median(plain)
    print(
        json.dumps(
            {
                "interpreter": summary(ours),
                "jupyter_client": summary(plain),
                "added_p50": round(added, 2),
            }
        )
    )


if __name__ == "__main__":
    main()
