"""`soulbox serve` as a unit of systemd: the one of the packages, `packaging/soulbox.service`."""

from machines.machine import Machine
from machines.serving import HEALTH, START_WITHIN, STOP_WITHIN, Serving
from support.server import PROJECT

FILE = "/etc/systemd/system/soulbox.service"


def content(lines: str) -> str:
    text = (PROJECT / "packaging/soulbox.service").read_text().replace("/usr/bin/soulbox", "/usr/local/bin/soulbox")
    return text.replace("[Service]\n", f"[Service]\n{lines}\n")


class Unit(Serving):
    def __init__(self, machine: Machine, lines: str = "") -> None:
        super().__init__(machine)
        machine.write(FILE, content(lines))
        machine.run("systemctl daemon-reload")

    def systemctl(self, *words: str) -> None:
        self.machine.run(f"systemctl {' '.join(words)} soulbox", within=STOP_WITHIN + START_WITHIN)

    def start(self, *_) -> None:
        self.systemctl("start")
        self.is_ready()

    def is_ready(self) -> None:
        """At once: systemd was told, and so was whoever asked it to start the unit."""
        assert self.machine.ssh(HEALTH).code == 0, self.log()

    def status(self) -> str:
        return self.machine.run("systemctl show soulbox -P StatusText").strip()

    def result(self) -> str:
        return self.machine.run("systemctl show soulbox -P Result").strip()

    def log(self) -> str:
        return self.machine.run("journalctl -b -u soulbox -o cat --no-pager -n 60")
