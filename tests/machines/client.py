"""The SDK's end of a check: programs of `guest/`, run on the machine by one process that stays there."""

import json
import select
import subprocess
import time

from machines.machine import COMMAND_WITHIN, Done, Machine, Unreachable

LOADED_WITHIN = 120.0
AGENT = "/opt/venv/bin/python -u /opt/checks/guest/agent.py"


class Client:
    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._process: subprocess.Popen | None = None

    def run(self, script: str, *arguments: str, data: str = "/var/lib/soulbox", within: float = COMMAND_WITHIN) -> str:
        """Its output; a failure in there is one of the check."""
        done = self.ask(script, *arguments, data=data, within=within)
        assert done.code == 0, str(done)
        return done.out

    def ask(self, script: str, *arguments: str, data: str = "/var/lib/soulbox", within: float = COMMAND_WITHIN) -> Done:
        began = time.monotonic()
        if self._process is None or self._process.poll() is not None:
            self._start()
        assert self._process is not None and self._process.stdin is not None
        asked = {"script": script, "arguments": arguments, "data": data}
        self._process.stdin.write(json.dumps(asked).encode() + b"\n")
        self._process.stdin.flush()
        answer = self._line(within)
        command = " ".join([f"{script}.py", *arguments])
        return Done(command, answer["code"], answer["out"], answer["err"], time.monotonic() - began)

    def close(self) -> None:
        """It ends with its input. The next check starts another one, on the machine as it is then."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _start(self) -> None:
        self.close()
        self._process = subprocess.Popen(
            self._machine.ssh_command(AGENT), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._line(LOADED_WITHIN)

    def _line(self, within: float) -> dict:
        assert self._process is not None and self._process.stdout is not None
        found, _, _ = select.select([self._process.stdout], [], [], within)
        line = self._process.stdout.readline() if found else b""
        if not line:
            self.close()
            raise Unreachable(f"the client on the machine did not answer within {within:.0f} s\n{self._machine.serial_tail()}")
        return json.loads(line)
