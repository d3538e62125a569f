"""`soulbox serve` on a machine, started in one of the ways in which people start it."""

import shlex
from enum import Enum

from machines.machine import Done, Machine

DATA = "/var/lib/soulbox"
LOG = "/var/log/soulbox-serve.log"
START_WITHIN = 240
STOP_WITHIN = 150
HEALTH = "curl -sf -m 5 -o /dev/null http://127.0.0.1:3000/health"


class How(Enum):
    ROOT = "root"  # from a shell of root
    SUDO = "sudo"  # from a user's shell


class Serving:
    def __init__(self, machine: Machine, how: How = How.ROOT, options: str = "", data: str = DATA) -> None:
        self.machine, self.how, self.data = machine, how, data
        self.options = f"{options} --data-dir {data}" if data != DATA else options

    def start(self, within: int = START_WITHIN) -> Done:
        """Until it answers. What it says goes into a log of its own for each start."""
        sudo, user = ("sudo ", "dev") if self.how is How.SUDO else ("", "root")
        self.machine.run(f"install -m 666 /dev/null {LOG}")
        self.machine.run(f"setsid {sudo}soulbox serve {self.options} > {LOG} 2>&1 < /dev/null &", user=user)
        return self.wait(within)

    def wait(self, within: int = START_WITHIN) -> Done:
        done = self.machine.ssh(
            f"for _ in $(seq {within * 2}); do {HEALTH} && exit 0; sleep 0.5;"
            " pgrep -x soulbox > /dev/null || exit 1; done; exit 1",
            within=within + 60,
        )
        assert done.code == 0, f"the server did not get ready:\n{self.log()}"
        return done

    def pid(self) -> int:
        return int(self.machine.run("pgrep -x -o soulbox"))

    def stop(self) -> float:
        """Politely; sandboxes stay. Seconds until it was gone."""
        return self.end("TERM")

    def kill9(self) -> float:
        return self.end("KILL")

    def end(self, signal: str) -> float:
        pid = self.pid()
        # `time` of the machine itself: the way there is not part of it.
        done = self.machine.ssh(
            f"TIMEFORMAT=%R; time {{ kill -{signal} {pid}; timeout {STOP_WITHIN} tail --pid={pid} -s 0.1 -f /dev/null; }}",
            within=STOP_WITHIN + 60,
        )
        assert done.code == 0, f"the server did not end within {STOP_WITHIN} s: {done}\n{self.log()}"
        return float(done.err.split()[-1])

    def is_running(self) -> bool:
        return self.machine.ssh("pgrep -x soulbox").code == 0

    def log(self) -> str:
        return self.machine.run(f"cat {LOG}")

    def cli(self, *words: str) -> Done:
        where = [] if self.data == DATA else ["--data-dir", self.data]
        return self.machine.ssh(shlex.join(["soulbox", words[0], *where, *words[1:]]))

    def take_away(self) -> float:
        """As docs/requirements.md says. Seconds that the stop took."""
        assert self.cli("kill", "--all").code == 0
        took = self.stop()
        self.machine.run(f"rm -rf {self.data}")
        return took
