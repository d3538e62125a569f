"""`soulbox serve` as a unit of systemd, written as people write them."""

from machines.machine import Machine
from machines.serving import STOP_WITHIN, Serving

FILE = "/etc/systemd/system/soulbox.service"
CONTENT = """
[Unit]
Description=SoulBox
After=network.target

[Service]
ExecStart=/usr/local/bin/soulbox serve
{lines}

[Install]
WantedBy=multi-user.target
"""


class Unit(Serving):
    def __init__(self, machine: Machine, lines: str = "") -> None:
        super().__init__(machine)
        machine.write(FILE, CONTENT.format(lines=lines))
        machine.run("systemctl daemon-reload")

    def systemctl(self, *words: str) -> None:
        self.machine.run(f"systemctl {' '.join(words)} soulbox", within=STOP_WITHIN + 60)

    def start(self, *_) -> None:
        self.systemctl("start")
        self.wait()

    def result(self) -> str:
        return self.machine.run("systemctl show soulbox -P Result").strip()

    def log(self) -> str:
        return self.machine.run("journalctl -b -u soulbox -o cat --no-pager -n 60")
