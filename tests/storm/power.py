"""The power cut of a round: the disk as it is at one moment of the storm, with what clients were told by
then. When the round is over another server is started on that disk and taken at its word.
"""

import asyncio
import random
import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path

from storm import wire
from storm.client import KILL, LOOK, Client, Given, TrackedSandbox, Refused, end_reason
from storm.judging import events_of, for_each, reasons_for
from storm.keeper import Keeper, Unusable
from storm.tally import Tally
from storm.victims import Struck
from support.power import ON_RECORD_WITHIN, PowerDisk, disks, play_reboot

# The server stands still meanwhile, and nobody's answer may come too late for that.
AT_REST_WITHIN = 15.0
# Of the file system that the server sees, where it keeps a reserve; and of what a storm really takes of
# it, twice, several times over (0.3 GiB with 1,000 creates).
MIB, MIB_EACH = 3072, 4
TAKEN, TAKEN_EACH = 1024, 2
# So many of those that ran are started again, besides all that were paused.
WOKEN = 12


def disk_for(folder: Path, creates: int) -> PowerDisk:
    """Mounted. It is sparse."""
    needed, free = TAKEN + TAKEN_EACH * creates, shutil.disk_usage(folder).free >> 20
    if free < needed:
        raise Unusable(
            f"power cuts want {needed} MiB in {folder.parent}, where {free} MiB are free: set TMPDIR to a folder "
            "with more room, ask for fewer --creates, or leave them out with --no-power-cuts"
        )
    try:
        disk = PowerDisk(folder, MIB + MIB_EACH * creates)
        disk.mount()
    except (OSError, RuntimeError) as error:
        raise Unusable(f"there is no disk whose power can be cut ({error}); --no-power-cuts does without") from error
    return disk


@dataclass
class Cut:
    """What was promised when the power went."""

    image: Path
    at: float
    tracked: list[TrackedSandbox]
    struck: set[str]


async def cut_power(keeper: Keeper, disk: PowerDisk, tracked: list[TrackedSandbox], struck: Struck) -> Cut:
    """Raises `NeverAtRest`, and then nothing has happened."""
    async with keeper.standing_still():
        told = [replace(tracked_one) for tracked_one in tracked if tracked_one.sandbox is not None]
        cut = Cut(disk.image.with_name("cut.img"), time.monotonic(), told, set(struck.sandboxes))
        await asyncio.to_thread(disk.copy, cut.image, AT_REST_WITHIN)
    return cut


class Check:
    """A server on the copy, as after the machine came up again. It takes the place of the storm's: the
    same addresses and names belong to it."""

    def __init__(self, keeper: Keeper, disk: PowerDisk, cut: Cut) -> None:
        self.keeper, self.disk, self.cut = keeper, disk, cut
        self.tally = Tally()
        self.client = Client(keeper, self.tally, Struck(set(cut.struck)))

    async def run(self, told: Tally) -> None:
        """Afterwards the storm's server is there again. What was not kept is `told`."""
        began = time.monotonic()
        told.power_cuts += 1
        told.told_of += len(self.cut.tracked)
        told.at_rest += sum(self._was_paused(tracked_one) for tracked_one in self.cut.tracked)
        try:
            await self.keeper.stop()
            await asyncio.to_thread(self._change_disk, self.cut.image)
            before = await asyncio.to_thread(self._after_reboot)
            await self.keeper.start(self.tally)
            await self._look(before)
            await self._end_what_runs()
            await self.keeper.stop()
            await asyncio.to_thread(self._change_disk, None)
            self.cut.image.unlink()
            await self.keeper.start(self.tally)
        finally:
            told.cut_seconds += time.monotonic() - began
            told.after_cuts += self.tally.after_cuts
            told.slow_starts += self.tally.slow_starts
            for each in self.tally.problems:
                kind, _, text = each.partition(": ")
                told.problem(kind, f"after a power cut: {text}")

    async def _end_what_runs(self) -> None:
        """Sandboxes outlive their server, and would hold the disk. The others go with it."""
        answer, _ = await self.client.insist("GET", "/v2/sandboxes?state=running&limit=100", LOOK)
        for each in answer.json() if answer.status == 200 else []:
            await self.client.insist("DELETE", f"/sandboxes/{each['sandboxID']}", KILL)

    def _change_disk(self, image: Path | None) -> None:
        self.disk.unmount()
        self.disk.mount(image)

    def _after_reboot(self) -> set[str]:
        play_reboot(self.keeper.server.data)
        return self._disks()

    def _disks(self) -> set[str]:
        return set(disks(self.keeper.server.data))

    async def _look(self, before: set[str]) -> None:
        answers: dict[str, wire.Answer] = {}

        async def ask(tracked_one: TrackedSandbox) -> None:
            try:
                answers[tracked_one.sandbox.id] = await self._told_of(tracked_one)
            except (Given, Refused) as error:
                self.tally.problem("untrue", f"{tracked_one.sandbox.id} cannot be asked for: {error!r}")

        await for_each(self.cut.tracked, ask)
        after = await asyncio.to_thread(self._disks)
        for tracked_one in self.cut.tracked:
            name = tracked_one.sandbox.id
            if name not in answers:
                continue
            self.tally.after_cuts[became(answers[name])] += 1
            if why := self.why_not_kept(tracked_one, answers[name], name in before, name in after):
                self.tally.problem("lost", f"{name} of {tracked_one.name} ({tracked_one.planned.fate.value}) {why}")
        there = [tracked_one for tracked_one in self.cut.tracked if (found := answers.get(tracked_one.sandbox.id)) and found.status == 200]
        promised = [tracked_one for tracked_one in there if self._was_paused(tracked_one)]
        others = [tracked_one for tracked_one in there if not self._was_paused(tracked_one)]
        await for_each(promised + random.sample(others, min(WOKEN, len(others))), self._wake)

    async def _told_of(self, tracked_one: TrackedSandbox) -> wire.Answer:
        """The answer about a sandbox; its owner has heard the same by events."""
        answer, _ = await self.client.insist("GET", f"/sandboxes/{tracked_one.sandbox.id}", LOOK)
        if self._is_on_record(tracked_one):
            reason = end_reason(answer)
            told, heard = await events_of(self.client, tracked_one.sandbox)
            if heard != [("created", None)] + ([("killed", reason)] if reason else []):
                self.tally.problem("untrue", f"{tracked_one.sandbox.id} is told as {answer}, and its events tell {heard}: {told}")
        return answer

    def why_not_kept(self, tracked_one: TrackedSandbox, answer: wire.Answer, had_disk: bool, has_disk: bool) -> str:
        """Empty if what was told of it is so, or what was not promised is told with a reason."""
        struck = tracked_one.sandbox.id in self.cut.struck
        ended = tracked_one.ended_at is not None and self._is_old(tracked_one.ended_at)
        if answer.status == 200:
            state = answer.json()["state"]
            if ended:
                return f"was killed, and is {state}"
            if not has_disk:
                return f"is {state}, and its disk is gone"
            # No process outlives the power.
            return "" if state == "paused" else f"is {state}"
        reason = end_reason(answer)
        if answer.status == 404 and reason in reasons_for(tracked_one.end_asked, struck):
            return ""
        if ended:
            return f"was killed, and is told otherwise: {answer}"
        if self._was_paused(tracked_one):
            return f"was paused, and is gone: {answer}"
        if answer.status == 404 and not self._is_on_record(tracked_one):
            return ""
        if had_disk and not has_disk:
            return f"has lost its disk: {answer}"
        if is_broken(answer):
            return ""
        if reason == "lost":
            return "" if not had_disk else f"is told as lost, and there is its disk: {answer}"
        return f"is gone without a word: {answer}"

    async def _wake(self, tracked_one: TrackedSandbox) -> None:
        sandbox, rested = tracked_one.sandbox, self._was_paused(tracked_one)
        try:
            await self.client.resume(tracked_one, sandbox)
            if rested:
                await self.client.read_witness(tracked_one, sandbox)
            else:
                await self.client.run(sandbox, "true")
            await self.client.kill(tracked_one, sandbox)
        except Given:
            pass
        except (Refused, wire.Cut) as refused:
            self.tally.problem("stuck", f"{sandbox.id} of {tracked_one.name} is there, and of no use: {refused}")

    def _is_old(self, moment: float) -> bool:
        return self.cut.at - moment > ON_RECORD_WITHIN

    def _is_on_record(self, tracked_one: TrackedSandbox) -> bool:
        return tracked_one.told_at is not None and self._is_old(tracked_one.told_at)

    def _was_paused(self, tracked_one: TrackedSandbox) -> bool:
        """It was paused, and nobody has touched it since."""
        return tracked_one.paused and not tracked_one.changing and not tracked_one.end_asked and tracked_one.sandbox.id not in self.cut.struck


def became(answer: wire.Answer) -> str:
    if answer.status == 200:
        return "there"
    return "broken" if is_broken(answer) else end_reason(answer) or "unknown"


def is_broken(answer: wire.Answer) -> bool:
    return answer.error.get("error_code") == "sandbox_broken"
