"""A program inside a sandbox that notices when a pause loses, repeats or mixes up anything."""

import hashlib
import json
import os
from typing import Any

from support.waiting import eventually

# Counts in memory, rewrites the blocks of a file in place and remembers their checksums, and looks
# through its memory and the file all the time. Asked over a socket, it says what it found.
PROGRAM = r"""
import hashlib, json, os, random, socket, threading

BLOCK, BLOCKS = 64 * 1024, 64
dice = random.Random(os.urandom(16))
nonce = os.urandom(8).hex()
held = bytearray(dice.randbytes(8 * 1024 * 1024))
held_sum = hashlib.sha256(held).hexdigest()
sums, wrong, count, lock = {}, [], 0, threading.Lock()
file = os.open("witness.data", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)

def turn():
    global count
    number = dice.randrange(BLOCKS)
    if number in sums:
        found = hashlib.sha256(os.pread(file, BLOCK, number * BLOCK)).hexdigest()
        if found != sums[number]:
            wrong.append(f"block {number} at count {count}")
    count += 1
    block = dice.randbytes(BLOCK)
    try:
        whole = os.pwrite(file, block, number * BLOCK) == BLOCK
    except OSError:
        whole = False
    if whole:
        sums[number] = hashlib.sha256(block).hexdigest()
    else:
        # No space: an error that is told is no loss, but of this block nothing is known now.
        sums.pop(number, None)

def work():
    pause = threading.Event()
    while not pause.wait(0.005):
        with lock:
            turn()

def report():
    with lock:
        for number, expected in sums.items():
            if hashlib.sha256(os.pread(file, BLOCK, number * BLOCK)).hexdigest() != expected:
                wrong.append(f"block {number} when asked at count {count}")
        if hashlib.sha256(held).hexdigest() != held_sum:
            wrong.append(f"memory at count {count}")
        return {"pid": os.getpid(), "nonce": nonce, "count": count, "wrong": wrong[:10]}

threading.Thread(target=work, daemon=True).start()
with socket.create_server(("127.0.0.1", 7999)) as listener:
    while True:
        caller, _ = listener.accept()
        with caller:
            caller.sendall(json.dumps(report()).encode())
"""

ASK = "exec 3<>/dev/tcp/127.0.0.1/7999 && cat <&3"


class Witness:
    """Watches one sandbox over pauses; `check` raises at the first thing that is not as it was."""

    def __init__(self, sandbox: Any) -> None:
        sandbox.files.write("witness.py", PROGRAM)
        sandbox.commands.run("exec python3 witness.py", background=True, timeout=0).disconnect()
        self.last = eventually(lambda: self._first(sandbox), within=20, what="the witness answers")
        self.files: dict[str, str] = {}

    def _first(self, sandbox: Any) -> Any:
        try:
            return self.ask(sandbox)
        except Exception:  # it does not listen yet
            return None

    def ask(self, sandbox: Any) -> dict[str, Any]:
        return json.loads(sandbox.commands.run(ASK, timeout=30).stdout)

    def write(self, sandbox: Any, number: int) -> None:
        """One more file, from outside; the ones from before are kept and compared."""
        content = os.urandom(48 * 1024)
        sandbox.files.write(f"outside/{number}", content)
        self.files[f"outside/{number}"] = hashlib.sha256(content).hexdigest()

    def check(self, sandbox: Any) -> dict[str, Any]:
        """The same process, counting on from where it was, with nothing wrong; all files whole."""
        now = self.ask(sandbox)
        assert now["wrong"] == [], now
        same = ("pid", "nonce")
        assert [now[key] for key in same] == [self.last[key] for key in same], (self.last, now)
        assert now["count"] >= self.last["count"], (self.last, now)
        self.last = now
        self.check_files(sandbox)
        return now

    def check_files(self, sandbox: Any) -> None:
        if self.files:
            out = sandbox.commands.run("sha256sum outside/*", timeout=30).stdout
            found = {name: digest for digest, name in (line.split() for line in out.splitlines())}
            assert found == self.files, "a file written from outside is not what it was"
