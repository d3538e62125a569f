"""A round: a burst with blows, then a look at every sandbox, then the end of all of them."""

import asyncio
import json
import os
import random
import time
from collections import Counter
from typing import Any

from e2b import Sandbox as SdkSandbox

from storm import wire
from storm.client import (
    KILL,
    LOOK,
    READ_WITNESS,
    STARTED,
    STARTED_TEMPLATE,
    Client,
    Given,
    TrackedSandbox,
    Refused,
    Sandbox,
    end_reason,
)
from storm.judging import events_of, for_each, reasons_for
from storm.keeper import Keeper
from storm.plan import Fate, Target, draw
from storm.power import Check, Cut, cut_power
from storm.tally import Tally
from storm.traces import Traces, orphans
from storm.victims import Struck, name_of, strike_any_process, strike_first_process
from support.power import NeverAtRest, PowerDisk

SETTLES_WITHIN = 40.0
# How many sandboxes are also looked at with the client that users have.
BY_SDK = 3


class Round:
    def __init__(self, keeper: Keeper, seed: int, number: int, creates: int, disk: PowerDisk | None = None) -> None:
        """With a disk, its power is cut once."""
        self.keeper, self.number, self.disk = keeper, number, disk
        self.plan = draw(seed, number, creates)
        self.tally, self.struck = Tally(), Struck()
        self.client = Client(keeper, self.tally, self.struck, crowded=self.plan.room is not None)
        self.tracked = [TrackedSandbox(planned, f"{number}-{planned.number}") for planned in self.plan.sandboxes]
        self.ended = 0
        self.cut: Cut | None = None

    async def play(self, before: Traces) -> Tally:
        other = self.plan.warm > 0 or self.plan.room is not None
        if other:
            await self.restart(self.plan.warm, self.plan.room)
        began = time.monotonic()
        await self.burst()
        self.tally.seconds = time.monotonic() - began
        listed = await self.settle()
        await self.cut_power_at_last()
        await self.look_at_all(listed)
        await self.end_all()
        for each in await asyncio.to_thread(self.orphans):
            self.tally.problem("leaked", f"no sandbox has this any more: {each}")
        await self.make_one_more()
        if other:
            # Without those that wait for a user, so that the counts can be compared.
            await self.restart()
        if self.cut is not None:
            await Check(self.keeper, self.disk, self.cut).run(self.tally)
        grown = await asyncio.to_thread(Traces.grown, before, self.keeper.server, SETTLES_WITHIN)
        for kind, change in grown.items():
            self.tally.problem("leaked", f"{kind}: {change}")
        return self.tally

    def orphans(self) -> list[str]:
        """What two looks in a row have found: between them an end may have been under way."""
        end, last = time.monotonic() + SETTLES_WITHIN, orphans(self.keeper.server)
        while last and time.monotonic() < end:
            time.sleep(0.3)
            last = sorted(set(last) & set(orphans(self.keeper.server)))
        return last

    async def restart(self, warm: int = 0, room: int | None = None) -> None:
        await self.keeper.stop()
        await self.keeper.start(self.tally, warm, room)

    async def make_one_more(self) -> None:
        """All were ended: there must be room for one, at once."""
        body = {"templateID": "base", "timeout": 60}
        try:
            answer = await self.client.ask("POST", "/v2/sandboxes", LOOK, body)
            if answer.status == 201:
                answer = await self.client.ask("DELETE", f"/sandboxes/{answer.json()['sandboxID']}", KILL)
            if answer.status != 204:
                self.tally.problem("stuck", f"all were ended, and one more cannot be made and ended: {answer}")
        except (Given, Refused, wire.Cut) as error:
            self.tally.problem("stuck", f"all were ended, and one more: {error!r}")

    # The burst.

    async def burst(self) -> None:
        blows = [asyncio.create_task(self.strike(blow)) for blow in self.plan.blows]
        blows.append(asyncio.create_task(self.cut_power()))

        async def one(tracked_one: TrackedSandbox) -> None:
            creating = asyncio.create_task(self.client.live(tracked_one))
            try:
                await creating
            finally:
                self.ended += 1

        await asyncio.gather(*(one(tracked_one) for tracked_one in self.tracked))
        # Those that fall now have their creates behind them, and the server is up for what follows.
        await asyncio.gather(*blows)
        await self.keeper.is_up()

    async def strike(self, blow) -> None:
        await self.has_come_to(blow.after)
        if blow.target is Target.SERVER:
            await self.keeper.kill(self.tally, blow.again, blow.polite)
            return
        hit = strike_first_process if blow.target is Target.FIRST_PROCESS else strike_any_process
        if await asyncio.to_thread(hit, self.keeper.server, self.struck, random.Random(blow.dice)):
            self.tally.struck += 1

    async def cut_power(self) -> None:
        await self.has_come_to(self.plan.power_cut)
        if self.disk is not None:
            try:
                self.cut = await cut_power(self.keeper, self.disk, self.tracked, self.struck)
            except NeverAtRest as restless:
                self.tally.remarks.append(f"the power is cut when all has settled: {restless}")

    async def cut_power_at_last(self) -> None:
        """The kernel may have had too much to write in the storm itself."""
        if self.disk is None or self.cut is not None:
            return
        await self.cut_power()
        if self.cut is None:
            self.tally.problem("stuck", f"the power could not be cut: {self.tally.remarks[-1]}")

    async def has_come_to(self, creates: int) -> None:
        while self.progress() < creates and self.ended < len(self.tracked):
            await asyncio.sleep(0.005)

    def progress(self) -> int:
        """How many creates have come to an end, whatever became of their sandboxes."""
        return sum(tracked_one.sandbox is not None or tracked_one.closed for tracked_one in self.tracked)

    # What is there afterwards.

    async def settle(self) -> dict[str, dict[str, Any]]:
        """The list, once it and the node's folders agree: nothing is half made or half gone."""
        end = time.monotonic() + SETTLES_WITHIN
        while True:
            listed = await self.listed()
            folders = await asyncio.to_thread(self.user_folders)
            if set(listed) == folders:
                return listed
            if time.monotonic() > end:
                only_listed, only_kept = sorted(set(listed) - folders), sorted(folders - set(listed))
                self.tally.problem(
                    "stuck",
                    f"after {SETTLES_WITHIN:.0f} s only the list has {only_listed[:5]} ({len(only_listed)}), "
                    f"only the node {[self.folder_tells(each) for each in only_kept[:5]]} ({len(only_kept)})",
                )
                return listed
            await asyncio.sleep(0.2)

    def user_folders(self) -> set[str]:
        folder = self.keeper.server.data / "sandboxes"
        return {each for each in os.listdir(folder) if not (folder / each / "warm.json").exists()}

    def folder_tells(self, name: str) -> str:
        folder = self.keeper.server.data / "sandboxes" / name
        try:
            return f"{name} {name_of(folder)} {sorted(os.listdir(folder))}"
        except OSError:
            return f"{name} (gone now)"

    async def listed(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        token = ""
        while True:
            answer, again = await self.client.insist("GET", f"/v2/sandboxes?limit=100{token}", LOOK)
            if answer.status != 200:
                self.tally.problem("untrue", f"the list answered {answer}")
                return found
            found |= {each["sandboxID"]: each for each in answer.json()}
            following = answer.headers.get("x-next-token")
            if not following:
                return found
            token = f"&nextToken={following}"

    async def look_at_all(self, listed: dict[str, dict[str, Any]]) -> None:
        acknowledged = {tracked_one.sandbox.id: tracked_one for tracked_one in self.tracked if tracked_one.sandbox}
        strays = [each for name, each in listed.items() if name not in acknowledged]
        self.count_strays(strays)
        await for_each(acknowledged.values(), lambda tracked_one: self.look_at(tracked_one, tracked_one.sandbox, listed))
        await for_each(strays, self.look_at_stray)
        await self.look_with_sdk(list(acknowledged.values()))

    def count_strays(self, strays: list[dict[str, Any]]) -> None:
        """A create that was answered made one sandbox; one that was cut may have made one."""
        tracked = {tracked_one.name: tracked_one for tracked_one in self.tracked}
        for name, count in Counter(each["metadata"].get("storm", "") for each in strays).items():
            tracked_one = tracked.get(name)
            # With a key, a repeated request finds the sandbox of the first.
            may = 0 if tracked_one is None else tracked_one.unknown
            if tracked_one is not None and tracked_one.planned.keyed:
                may = min(may, len(tracked_one.keys) - (tracked_one.sandbox is not None))
            if count > may:
                self.tally.problem("leaked", f"{count} sandboxes of create {name!r} that nobody was told of, {may} may be")

    async def look_at(self, tracked_one: TrackedSandbox, sandbox: Sandbox, listed: dict[str, dict[str, Any]]) -> None:
        try:
            if tracked_one.end_asked or sandbox.id in self.struck.sandboxes:
                await self.look_at_ended(tracked_one, sandbox)
            else:
                await self.look_at_kept(tracked_one, sandbox, sandbox.id in listed)
        except Given:
            pass
        except Refused as refused:
            self.tally.problem("untrue", f"{tracked_one.name}: {refused}")

    async def look_at_kept(self, tracked_one: TrackedSandbox, sandbox: Sandbox, is_listed: bool) -> None:
        answer, _ = await self.client.insist("GET", f"/sandboxes/{sandbox.id}", LOOK)
        what = f"{sandbox.id} of {tracked_one.name} ({tracked_one.planned.fate.value})"
        if answer.status != 200 or not is_listed:
            self.tally.problem("lost", f"{what}, listed: {is_listed}: {answer}")
            return
        state, wanted = answer.json()["state"], "paused" if tracked_one.paused else "running"
        if state != wanted and tracked_one.planned.fate in (Fate.PAUSE, Fate.PAUSE_AND_RESUME) and not self.tally.problems:
            self.tally.problem("untrue", f"{what} is {state} and should be {wanted}")
        told, heard = await events_of(self.client, sandbox)
        if heard != [("created", None)]:
            self.tally.problem("untrue", f"{what} is there, and its events tell {heard}: {told}")
        try:
            if state == "paused":
                await self.client.resume(tracked_one, sandbox)
            if tracked_one.witnessed:
                await self.client.read_witness(tracked_one, sandbox)
            else:
                await self.client.run(sandbox, "true")
        except (Refused, wire.Cut) as refused:
            self.tally.problem("stuck", f"{what} does not answer: {refused}")

    async def look_at_ended(self, tracked_one: TrackedSandbox, sandbox: Sandbox) -> None:
        """Gone with a reason; or, only struck and not killed, still there and answering."""
        what = f"{sandbox.id} of {tracked_one.name} ({tracked_one.planned.fate.value})"
        end = time.monotonic() + SETTLES_WITHIN
        while True:
            answer, _ = await self.client.insist("GET", f"/sandboxes/{sandbox.id}", LOOK)
            if answer.status == 404:
                kind, problem = await self.why_not_well_told(tracked_one, sandbox, answer)
            elif tracked_one.end_asked or answer.status != 200:
                kind, problem = "stuck", f"is still there after its kill: {answer}"
            else:
                kind, problem = "stuck", await self.why_not_well(tracked_one, sandbox, answer)
            if not problem:
                return
            if time.monotonic() > end:
                self.tally.problem(kind, f"{what} {problem}")
                return
            await asyncio.sleep(0.2)

    async def why_not_well(self, tracked_one: TrackedSandbox, sandbox: Sandbox, answer: wire.Answer) -> str:
        try:
            if answer.json()["state"] == "paused":
                await self.client.resume(tracked_one, sandbox)
            await self.client.run(sandbox, READ_WITNESS if tracked_one.witnessed else "true")
        except (Refused, wire.Cut) as refused:
            return f"was struck and neither ends nor answers: {refused}"
        return ""

    async def why_not_well_told(self, tracked_one: TrackedSandbox, sandbox: Sandbox, answer: wire.Answer) -> tuple[str, str]:
        """One that is gone has a reason that the plan knows, and its events tell the same, each once."""
        reason = end_reason(answer)
        allowed = reasons_for(tracked_one.end_asked, sandbox.id in self.struck.sandboxes)
        if reason not in allowed:
            return "lost", f"is reported as {reason!r}, not one of {sorted(allowed)}: {answer}"
        told, heard = await events_of(self.client, sandbox)
        wanted = [("created", None), ("killed", reason)]
        return "untrue", "" if heard == wanted else f"ended as {reason!r}, and its events tell {heard}: {told}"

    async def look_at_stray(self, listed: dict[str, Any]) -> None:
        """Nobody was told of it; but what is listed works."""
        name = listed["sandboxID"]
        end = time.monotonic() + SETTLES_WITHIN
        while True:
            try:
                answer, _ = await self.client.insist("GET", f"/sandboxes/{name}", LOOK)
                if answer.status == 404:
                    # Struck, or it came up in the moment in which its server died, and ended.
                    if end_reason(answer) is None:
                        self.tally.problem("lost", f"{name} was listed, and is gone for no reason: {answer}")
                    return
                started = STARTED if listed.get("alias") == STARTED_TEMPLATE else ""
                await self.client.run(Sandbox(name, answer.json().get("envdAccessToken") or ""), started + "true")
                return
            except Given:
                return
            except (Refused, wire.Cut) as refused:
                if time.monotonic() > end:
                    what = f"{name} of a create that was not answered is listed and does not answer"
                    self.tally.problem("stuck", f"{what}: {refused}")
                    return
            await asyncio.sleep(0.2)

    async def look_with_sdk(self, tracked: list[TrackedSandbox]) -> None:
        untouched = [tracked_one for tracked_one in tracked if tracked_one.witnessed and not tracked_one.end_asked and not self.client.was_struck(tracked_one)]
        options = self.keeper.server.sdk

        def look(tracked_one: TrackedSandbox) -> str:
            assert tracked_one.sandbox is not None
            sandbox = SdkSandbox.connect(tracked_one.sandbox.id, timeout=600, **options)
            return sandbox.commands.run(READ_WITNESS, timeout=30).stdout

        for tracked_one in untouched[:BY_SDK]:
            try:
                found = await asyncio.to_thread(look, tracked_one)
            except Exception as error:  # whatever the client raises is what a user would get
                self.tally.problem("stuck", f"the SDK cannot use {tracked_one.sandbox}: {error!r}")
                continue
            if found != tracked_one.planned.witness:
                self.tally.problem("lost", f"the SDK read {found!r} as the witness of {tracked_one.sandbox}")

    # The end of all.

    async def end_all(self) -> None:
        listed = await self.listed()
        ended = 0

        async def end(name: str) -> None:
            nonlocal ended
            ended += 1
            if ended == self.plan.kill_in_the_end:
                await self.keeper.kill(self.tally)
            try:
                answer, again = await self.client.insist("DELETE", f"/sandboxes/{name}", KILL)
            except Given:
                return
            except Refused as refused:
                self.tally.problem("untrue", f"while {name} was killed: {refused}")
                return
            gone_by_itself = answer.status == 404 and (again or name in self.struck.sandboxes)
            if answer.status != 204 and not gone_by_itself:
                self.tally.problem("stuck", f"{name} cannot be killed: {answer}")

        await for_each(listed, end)
        left = await self.listed()
        if left:
            self.tally.problem("stuck", f"{len(left)} are listed after all were killed: {list(left)[:5]}")
