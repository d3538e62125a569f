"""Runs inside a sandbox, as root: one submission as `user`, with limits. Prints how it ended.

`examples/class_of_submissions.py` puts it into the template that it builds.
"""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

CPU_SECONDS, SECONDS, PROCESSES, FILE_SIZE = 2, 10, 64, 1 << 20


def limit() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 1))
    resource.setrlimit(resource.RLIMIT_NPROC, (PROCESSES, PROCESSES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_SIZE, FILE_SIZE))


def processes_of(user: int) -> int:
    count = 0
    for each in Path("/proc").glob("[0-9]*"):
        try:
            count += each.stat().st_uid == user
        except FileNotFoundError:  # it has ended meanwhile
            pass
    return count


# When memory is short, the kernel shall choose the submission, and not this program.
chosen = Path("/proc/self/oom_score_adj")
before = chosen.read_text()
chosen.write_text("1000")

folder = Path("/home/user")
with open("/tmp/input", "rb") as given, open("/tmp/output", "wb") as said, open("/tmp/errors", "wb") as complained:
    run = subprocess.Popen(
        sys.argv[1:], cwd=folder, stdin=given, stdout=said, stderr=complained, user="user", group="user", preexec_fn=limit
    )
    chosen.write_text(before)
    try:
        code = run.wait(SECONDS)
    except subprocess.TimeoutExpired:
        code = None

print(json.dumps({
    "code": code,  # below zero: the signal that ended it; null: it was still running
    "processes": processes_of(folder.stat().st_uid),
    "output": Path("/tmp/output").read_text(errors="replace")[:1000],
    "errors": Path("/tmp/errors").read_text(errors="replace")[-1000:],
}), flush=True)  # fmt: skip
# The shell's word for "killed": with it the sandbox says whether its memory was used up.
os._exit(137 if code in (-9, 137) else 0)
