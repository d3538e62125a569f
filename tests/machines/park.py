"""One machine at a time: each takes two cpus and gigabytes."""

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from machines.client import Client
from machines.image import Image
from machines.machine import Machine


class Kind(Enum):
    """What a machine is wanted for. Checks of one kind share a boot, in the order given here."""

    STOCK = "stock"
    SMALL = "small"  # 1 GiB of memory
    BROKEN = "broken"  # nothing has been served on it, so that no module of the kernel is there yet


MEMORY = {Kind.STOCK: 3072, Kind.SMALL: 1024, Kind.BROKEN: 2048}


@dataclass
class Booted:
    machine: Machine
    client: Client
    used: bool = False  # by the checks of a module


class Park:
    def __init__(self, binary: Path) -> None:
        self._binary = binary
        self._held: tuple[Image, Kind] | None = None
        self.booted: Booted | None = None

    def get(self, image: Image, kind: Kind) -> Booted:
        if self.booted is not None and self._held == (image, kind) and self.booted.machine.answers():
            return self.booted
        self.clear()
        machine = Machine(image, self._binary, memory=MEMORY[kind])
        self._held, self.booted = (image, kind), Booted(machine, Client(machine))
        try:
            machine.boot()
        except BaseException:
            self.clear()
            raise
        return self.booted

    def clear(self) -> None:
        if self.booted is not None:
            self.booted.client.close()
            self.booted.machine.stop()
        self._held = self.booted = None
