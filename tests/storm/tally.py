"""What a storm counts."""

from collections import Counter
from dataclasses import dataclass, field, fields
from typing import Any


@dataclass
class Tally:
    # Requests to create, by how they ended.
    asked: int = 0
    acknowledged: int = 0
    refused: int = 0
    cut: int = 0
    hung_up: int = 0
    # The server says that it does not know what became of the first attempt with this key.
    forgotten: int = 0
    # A typed error because the plan killed what was being made.
    failed_by_plan: int = 0
    # A typed error without such a cause. True, but nobody is glad of it.
    failed: int = 0
    # What the plan did.
    killed: int = 0
    struck: int = 0
    server_kills: int = 0
    # Starts of the server that took too long, but came to an end. They count as stuck too.
    slow_starts: int = 0
    # Cuts of the power, how many sandboxes clients had been told of by then, and were paused; what became
    # of them, and how long the looks took.
    power_cuts: int = 0
    told_of: int = 0
    at_rest: int = 0
    after_cuts: Counter[str] = field(default_factory=Counter)
    cut_seconds: float = 0.0
    # Acknowledged, and neither there nor ended for a reason that the plan knows.
    lost: int = 0
    # A request, a sandbox or the server that came to no end within its bound.
    stuck: int = 0
    # What is more on the machine than before.
    leaked: int = 0
    # Answers that are not so.
    untrue: int = 0
    problems: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    create_times: list[float] = field(default_factory=list)
    recoveries: list[float] = field(default_factory=list)
    seconds: float = 0.0

    def problem(self, kind: str, text: str) -> None:
        """`kind` is one of lost, stuck, leaked, untrue."""
        setattr(self, kind, getattr(self, kind) + 1)
        self.problems.append(f"{kind}: {text}")

    @property
    def bad(self) -> int:
        return self.lost + self.stuck + self.leaked + self.untrue

    def add(self, other: "Tally") -> None:
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))

    def percentile(self, share: float) -> float:
        ordered = sorted(self.create_times)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0

    @property
    def worst_recovery(self) -> float:
        return max(self.recoveries, default=0.0)

    def __str__(self) -> str:
        return (
            f"asked {self.asked}: acknowledged {self.acknowledged}, refused {self.refused}, cut {self.cut}, "
            f"hung up {self.hung_up}, forgotten {self.forgotten}, failed by plan {self.failed_by_plan}, failed {self.failed}; "
            f"killed {self.killed}, struck {self.struck}, server killed {self.server_kills} times "
            f"(back within {self.worst_recovery:.2f} s, slow starts {self.slow_starts}); create p50 {self.percentile(0.5) * 1000:.0f} ms, "
            f"p99 {self.percentile(0.99) * 1000:.0f} ms; "
            f"power cut {self.power_cuts} times with {self.told_of} told of, {self.at_rest} of them paused: "
            f"{', '.join(f'{each} {count}' for each, count in sorted(self.after_cuts.items())) or 'none'} "
            f"(looked at in {self.cut_seconds:.0f} s); "
            f"lost {self.lost}, stuck {self.stuck}, leaked {self.leaked}, untrue {self.untrue}"
        )

    def report(self) -> dict[str, Any]:
        numbers = {each.name: getattr(self, each.name) for each in fields(self)}
        numbers["create_p50"], numbers["create_p99"] = self.percentile(0.5), self.percentile(0.99)
        numbers["worst_recovery"] = self.worst_recovery
        return numbers
