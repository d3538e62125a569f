"""One client of a storm, who wants one sandbox, and asks again as the answers tell it."""

import asyncio
import base64
import json
import re
import time
import uuid
from dataclasses import dataclass, field
from typing import Any

from storm import wire
from storm.wire import Answer
from storm.keeper import Keeper
from storm.plan import Fate, PlannedSandbox
from storm.tally import Tally
from storm.victims import Struck

# How long an answer may take at most: the server's own bounds, and some.
CREATE, KILL, PAUSE, RESUME, EXEC, LOOK = 75.0, 75.0, 120.0, 75.0, 60.0, 30.0
# All attempts of a create together, on a server whose starts are not slow.
PATIENCE = 400.0
LIFETIME = 3600
LEAVE_WITNESS = "printf %s '{0}' > /home/user/witness && cat /home/user/witness"
READ_WITNESS = "cat /home/user/witness"
# Made by `series.build_template`: its start command leaves this, its ready command waits for it.
STARTED_TEMPLATE = "storm-started"
STARTED = "test -e /home/user/started || { echo its start command has not done its work; exit 1; }; "
# On a server with too little room, a client gives up after so many refusals.
REFUSALS = 3
ENDED = re.compile(r"\(ended(?: at \S+)?, (\w+)")


class Given(Exception):
    """Told as a problem already."""


@dataclass
class Sandbox:
    id: str
    token: str


@dataclass
class TrackedSandbox:
    """What is known of one planned sandbox."""

    planned: PlannedSandbox
    name: str
    sandbox: Sandbox | None = None
    # Attempts of which nobody knows whether they made a sandbox.
    unknown: int = 0
    witnessed: bool = False
    end_asked: bool = False
    paused: bool = False
    # When a create and a kill were answered.
    told_at: float | None = None
    ended_at: float | None = None
    # A pause or a resume is under way, or came to no good end.
    changing: bool = False
    # Ended, told as failed or as a problem: nothing to look after any more.
    closed: bool = False
    keys: list[str] = field(default_factory=list)


class Client:
    def __init__(self, keeper: Keeper, tally: Tally, struck: Struck, crowded: bool = False) -> None:
        self.keeper, self.tally, self.struck, self.crowded = keeper, tally, struck, crowded
        self.key = keeper.server.key

    # One request.

    async def ask(self, method: str, path: str, within: float, body: Any = None, **options: Any) -> Answer:
        """One attempt. A cut that no kill of the server explains is no `Cut` but a `Refused`."""
        await self.keeper.is_up()
        headers = {"Content-Type": "application/json"} | options.pop("headers", {})
        if "E2b-Sandbox-Id" not in headers:  # with a key it would be for the API
            headers["X-API-Key"] = self.key
        content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        epoch = self.keeper.epoch
        try:
            return await wire.call(self.keeper.port, method, path, headers, content, within, **options)
        except wire.Cut as cut:
            if epoch == self.keeper.epoch:
                raise Refused(f"cut although the server lived: {cut}") from None
            raise
        except wire.Late as late:
            self.tally.problem("stuck", str(late))
            raise Given from None

    async def insist(self, method: str, path: str, within: float, body: Any = None, **options: Any) -> tuple[Answer, bool]:
        """Asks until there is an answer; the second value says whether an earlier attempt was cut."""
        again = False
        while True:
            try:
                answer = await self.ask(method, path, within, body, **options)
            except wire.Cut:
                again = True
                continue
            if answer.status in (429, 503) and answer.retry_after and answer.error:
                await asyncio.sleep(answer.retry_after)
                continue
            return answer, again

    async def run(self, sandbox: Sandbox, script: str, hang_up_after: float | None = None) -> str:
        """A command in the sandbox, as the SDKs run it; its output."""
        message = json.dumps({"process": {"cmd": "/bin/sh", "args": ["-c", script]}}).encode()
        headers = {
            "Content-Type": "application/connect+json",
            "Connect-Protocol-Version": "1",
            "E2b-Sandbox-Id": sandbox.id,
            "E2b-Sandbox-Port": "49983",
            "X-Access-Token": sandbox.token,
            "Authorization": "Basic " + base64.b64encode(b"user:").decode(),
        }
        frame = b"\0" + len(message).to_bytes(4) + message
        answer, _ = await self.insist(
            "POST", "/process.Process/Start", EXEC, frame, headers=headers, hang_up_after=hang_up_after
        )
        if answer.status != 200:
            raise Refused(f"an exec in {sandbox.id} answered {answer}")
        return output(answer.body)

    # A whole tracked_one.

    async def live(self, tracked_one: TrackedSandbox) -> None:
        try:
            await self.create(tracked_one)
            if tracked_one.sandbox is None:
                return
            script = LEAVE_WITNESS.format(tracked_one.planned.witness)
            found = await self.run(tracked_one.sandbox, STARTED + script if tracked_one.planned.started else script)
            if found != tracked_one.planned.witness:
                self.tally.problem("untrue", f"{tracked_one.sandbox.id} read back {found!r} instead of its witness")
            tracked_one.witnessed = True
            await asyncio.sleep(tracked_one.planned.delay)
            await self.meet_fate(tracked_one, tracked_one.sandbox)
        except Given:
            pass
        except (Refused, wire.Cut) as refused:
            if not self.was_struck(tracked_one):
                which = tracked_one.sandbox.id if tracked_one.sandbox else "no sandbox"
                self.tally.problem("untrue", f"{which} of {tracked_one.name} ({tracked_one.planned.fate.value}): {refused}")

    async def create(self, tracked_one: TrackedSandbox) -> None:
        template = STARTED_TEMPLATE if tracked_one.planned.started else "base"
        body = {"templateID": template, "timeout": LIFETIME, "metadata": {"storm": tracked_one.name}}
        refusals = 0
        began = asyncio.get_running_loop().time() - self.keeper.lateness
        key = self.new_key(tracked_one)
        while asyncio.get_running_loop().time() - self.keeper.lateness < began + PATIENCE:
            options: dict[str, Any] = {"headers": {"Idempotency-Key": key} if key else {}}
            if tracked_one.planned.fate is Fate.HANG_UP_ON_CREATE:
                options["hang_up_after"] = 0.002 + tracked_one.planned.delay
            self.tally.asked += 1
            try:
                answer = await self.ask("POST", "/v2/sandboxes", CREATE, body, **options)
            except wire.HungUp:
                self.tally.hung_up += 1
                tracked_one.unknown += 1
                tracked_one.closed = True
                return
            except wire.Cut:
                self.tally.cut += 1
                tracked_one.unknown += 1
                continue
            except (Given, Refused):
                tracked_one.unknown += 1
                tracked_one.closed = True
                raise
            error_code = answer.error.get("error_code")
            if answer.status == 201:
                made = answer.json()
                tracked_one.sandbox = Sandbox(made["sandboxID"], made.get("envdAccessToken") or "")
                tracked_one.told_at = time.monotonic()
                self.tally.acknowledged += 1
                self.tally.create_times.append(answer.took)
                return
            if answer.retry_after and error_code:
                self.tally.refused += 1
                refusals += 1
                if self.crowded and refusals == REFUSALS:
                    tracked_one.closed = True
                    return
                await asyncio.sleep(answer.retry_after)
            elif error_code == "idempotency_outcome_unknown":
                self.tally.forgotten += 1
                key = self.new_key(tracked_one)
            elif error_code or (answer.status < 500 and answer.error):
                tracked_one.closed = True
                if tracked_one.name in self.struck.names:
                    self.tally.failed_by_plan += 1
                else:
                    self.tally.failed += 1
                    self.tally.remarks.append(f"create failed: {answer}")
                return
            else:
                tracked_one.closed = True
                self.tally.problem("untrue", f"a create answered {answer}")
                return
        tracked_one.closed = True
        self.tally.problem("stuck", f"{tracked_one.name}: no sandbox within {PATIENCE:.0f} s of asking")

    def new_key(self, tracked_one: TrackedSandbox) -> str | None:
        if not tracked_one.planned.keyed:
            return None
        tracked_one.keys.append(str(uuid.uuid4()))
        return tracked_one.keys[-1]

    async def meet_fate(self, tracked_one: TrackedSandbox, sandbox: Sandbox) -> None:
        match tracked_one.planned.fate:
            case Fate.KILL:
                await self.kill(tracked_one, sandbox)
            case Fate.KILL_TWICE:
                tracked_one.end_asked = True
                epoch = self.keeper.epoch
                path = f"/sandboxes/{sandbox.id}"
                both = await asyncio.gather(*(self.insist("DELETE", path, KILL) for _ in range(2)))
                tracked_one.ended_at = time.monotonic()
                statuses = sorted(answer.status for answer, _ in both)
                self.tally.killed += 1
                quiet = epoch == self.keeper.epoch and not self.was_struck(tracked_one)
                if statuses not in ([204, 404], [404, 404]) or (quiet and statuses != [204, 404]):
                    self.tally.problem("untrue", f"two kills of {sandbox.id} answered {both[0][0]} and {both[1][0]}")
            case Fate.PAUSE:
                await self.pause(tracked_one, sandbox)
            case Fate.PAUSE_AND_RESUME:
                await self.pause(tracked_one, sandbox)
                await self.resume(tracked_one, sandbox)
                await self.read_witness(tracked_one, sandbox)
            case Fate.HANG_UP_ON_EXEC:
                try:
                    await self.run(sandbox, "exec sleep 30", hang_up_after=0.01 + tracked_one.planned.delay)
                except wire.HungUp:
                    pass

    async def kill(self, tracked_one: TrackedSandbox, sandbox: Sandbox) -> None:
        tracked_one.end_asked = True
        answer, again = await self.insist("DELETE", f"/sandboxes/{sandbox.id}", KILL)
        tracked_one.ended_at = time.monotonic()
        self.tally.killed += 1
        if answer.status == 404 and (again or self.was_struck(tracked_one)):
            return
        if answer.status != 204:
            raise Refused(f"a kill of {sandbox.id} answered {answer}")

    async def pause(self, tracked_one: TrackedSandbox, sandbox: Sandbox) -> None:
        tracked_one.changing = True
        answer, again = await self.insist("POST", f"/sandboxes/{sandbox.id}/pause", PAUSE)
        if answer.status == 409 and again and "paused already" in answer.error.get("message", ""):
            answer.status = 204
        if answer.status != 204:
            raise Refused(f"a pause of {sandbox.id} answered {answer}")
        tracked_one.paused, tracked_one.changing = True, False

    async def resume(self, tracked_one: TrackedSandbox, sandbox: Sandbox) -> None:
        tracked_one.changing = True
        answer, again = await self.insist(
            "POST", f"/v2/sandboxes/{sandbox.id}/connect", RESUME, {"timeout": LIFETIME}
        )
        if answer.status not in (200, 201) or (answer.status == 200 and not again):
            raise Refused(f"a resume of {sandbox.id} answered {answer}")
        tracked_one.paused, tracked_one.changing = False, False

    async def read_witness(self, tracked_one: TrackedSandbox, sandbox: Sandbox) -> None:
        found = await self.run(sandbox, READ_WITNESS)
        if found != tracked_one.planned.witness:
            self.tally.problem("lost", f"{sandbox.id}: its witness is {found!r}, not {tracked_one.planned.witness}")

    def was_struck(self, tracked_one: TrackedSandbox) -> bool:
        return tracked_one.sandbox is not None and tracked_one.sandbox.id in self.struck.sandboxes


class Refused(Exception):
    """An answer that was not the wanted one. Whether it is true depends on what the storm did."""


def output(body: bytes) -> str:
    """What a process printed, of a stream of Connect's envelopes; it must be whole and have ended well."""
    out, ended, at = b"", None, 0
    while at + 5 <= len(body):
        size = int.from_bytes(body[at + 1 : at + 5])
        message = json.loads(body[at + 5 : at + 5 + size] or b"{}")
        if body[at] & 2 and message.get("error"):
            raise Refused(f"an exec ended with {message['error']}")
        event = message.get("event", {})
        for stream in ("stdout", "stderr"):
            out += base64.b64decode(event.get("data", {}).get(stream, ""))
        ended = event.get("end", ended)
        at += 5 + size
    if ended is None or ended.get("exitCode", 0) != 0:
        raise Refused(f"an exec ended as {ended} after {out[:200]!r}")
    return out.decode(errors="replace")


def end_reason(answer: Answer) -> str | None:
    """Why a sandbox that is not there any more ended, as the answer tells it."""
    told = ENDED.search(answer.error.get("message", ""))
    return told[1] if told else None
