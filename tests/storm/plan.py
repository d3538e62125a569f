"""What a round does, drawn from a seed: the same seed and size give the same plan.

Blows fall when so many creates have come to an end, not after so many seconds: a slow machine gets
the same storm as a fast one. What they meet then depends on the machine.
"""

import random
from dataclasses import dataclass
from enum import Enum


class Fate(Enum):
    """What a client does with its sandbox after it has left its witness there."""

    STAY = "stay"
    KILL = "kill"
    KILL_TWICE = "kill twice at once"
    PAUSE = "pause"
    PAUSE_AND_RESUME = "pause and resume"
    HANG_UP_ON_CREATE = "hang up on the create"
    HANG_UP_ON_EXEC = "hang up on an exec"


WEIGHTS = {
    Fate.STAY: 49,
    Fate.KILL: 16,
    Fate.KILL_TWICE: 3,
    # What a power cut must leave whole.
    Fate.PAUSE: 8,
    Fate.PAUSE_AND_RESUME: 5,
    Fate.HANG_UP_ON_CREATE: 11,
    Fate.HANG_UP_ON_EXEC: 8,
}


@dataclass(frozen=True)
class PlannedSandbox:
    """One create and what becomes of it."""

    number: int
    fate: Fate
    # Sent with an idempotency key: repeated after a cut, it must give the same sandbox.
    keyed: bool
    # Seconds until the client acts on its fate, or hangs up.
    delay: float
    witness: str
    # Of the template with a start command, which has run when the create is answered.
    started: bool


class Target(Enum):
    SERVER = "the server"
    FIRST_PROCESS = "the first process of a sandbox"
    ANY_PROCESS = "some process in a sandbox's cgroup, also of one that is being made"


@dataclass(frozen=True)
class Blow:
    """A SIGKILL, or for the server now and then a polite stop."""

    target: Target
    # How many creates have ended by then.
    after: int
    # Chooses among what is there.
    dice: int
    # The server only: killed again so many seconds after its restart began.
    again: float | None = None
    # The server only: asked to stop, as for an upgrade, instead of killed.
    polite: bool = False


@dataclass(frozen=True)
class Plan:
    sandboxes: list[PlannedSandbox]
    blows: list[Blow]
    # How many sandboxes the server keeps ready.
    warm: int
    # The server is killed when so many of the remaining sandboxes have been ended.
    kill_in_the_end: int | None
    # The server may promise memory to only so many sandboxes, fewer than are asked for.
    room: int | None
    # If the storm has power cuts: it falls when so many creates have ended; beyond them, when all has.
    power_cut: int


def draw(seed: int, number: int, creates: int) -> Plan:
    dice = random.Random(f"storm {seed} {number}")
    fates = dice.choices(list(WEIGHTS), list(WEIGHTS.values()), k=creates)
    sandboxes = [
        PlannedSandbox(
            number=each,
            fate=fate,
            keyed=dice.random() < 0.5,
            delay=dice.uniform(0, 0.6) ** 2,
            witness=dice.randbytes(16).hex(),
            started=dice.random() < 0.15,
        )
        for each, fate in enumerate(fates)
    ]
    blows = [
        Blow(
            Target.SERVER,
            dice.randrange(1, max(2, creates * 95 // 100)),
            dice.getrandbits(32),
            again=dice.uniform(0, 0.8) if dice.random() < 0.3 else None,
            polite=dice.random() < 0.15,
        )
        for _ in range(dice.choice([1, 1, 2, 3]))
    ]
    for target, share in [(Target.FIRST_PROCESS, 25), (Target.ANY_PROCESS, 40)]:
        for _ in range(max(1, creates // share)):
            blows.append(Blow(target, dice.randrange(1, max(2, creates)), dice.getrandbits(32)))
    blows.sort(key=lambda blow: blow.after)
    kill_in_the_end = dice.randrange(max(1, creates // 2)) if dice.random() < 0.4 else None
    room = max(4, int(creates * dice.uniform(0.4, 0.8))) if dice.random() < 0.3 else None
    # With dice of its own: the same storm with it and without.
    power_cut = random.Random(f"power cut {seed} {number}").randint(creates // 2, creates * 5 // 4)
    return Plan(sandboxes, blows, dice.choice([0, 8]), kill_in_the_end, room, power_cut)
