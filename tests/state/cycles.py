"""Pause and resume, over and over; with `kill`, the server dies (-9) in every cycle."""

import time
from dataclasses import dataclass, field

from e2b import Sandbox

from support.server import Server
from support.witness import Witness


@dataclass
class Summary:
    cycles: int = 0
    kills: int = 0
    counted: int = 0
    pauses: list[float] = field(default_factory=list)
    resumes: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.cycles} cycles, {self.kills} kills of the server, the witness counted to {self.counted}, "
            f"no mismatch; pause {middle_and_worst(self.pauses)}, resume {middle_and_worst(self.resumes)}"
        )


def middle_and_worst(seconds: list[float]) -> str:
    ordered = sorted(seconds)
    return f"{ordered[len(ordered) // 2] * 1000:.0f} ms (worst {ordered[-1] * 1000:.0f} ms)"


def run_cycles(server: Server, cycles: int, kill: bool, progress=lambda _: None) -> Summary:
    sandbox = Sandbox.create(timeout=3600, **server.sdk)
    summary = Summary()
    try:
        witness = Witness(sandbox)
        for number in range(cycles):
            witness.write(sandbox, number)
            if kill and number % 2:
                # Dies beside a running sandbox.
                restart(server, summary)
                witness.check(sandbox)
            began = time.monotonic()
            assert sandbox.pause() is True
            summary.pauses.append(time.monotonic() - began)
            if kill and number % 2 == 0:
                # Dies while the sandbox rests.
                restart(server, summary)
            began = time.monotonic()
            sandbox = Sandbox.connect(sandbox.sandbox_id, timeout=3600, **server.sdk)
            summary.resumes.append(time.monotonic() - began)
            summary.counted = witness.check(sandbox)["count"]
            summary.cycles += 1
            progress(summary)
    finally:
        sandbox.kill()
    return summary


def restart(server: Server, summary: Summary) -> None:
    server.kill9()
    server.start()
    summary.kills += 1
