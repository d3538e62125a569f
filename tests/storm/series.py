"""Storms: round after round against one server."""

import asyncio
import resource
import time
from dataclasses import replace
from pathlib import Path
from typing import Callable, Iterable

from e2b import Template

from storm.client import STARTED_TEMPLATE
from storm.keeper import Keeper, Unusable
from storm.rounds import Round
from storm.stopping import Stop
from storm.tally import Tally
from storm.traces import Traces
from support.power import PowerDisk
from support.server import Server


def server_for(data: Path, creates: int, log: Path) -> Server:
    # Creates that are cut may have made a sandbox, and are asked for again.
    server = Server(data, extra=["--max-sandboxes", str(min(4000, 4 * creates + 64))])
    # Not on its disk: copies are of what it keeps.
    server.log = log
    return server


def run(
    server: Server,
    seed: int,
    rounds: Iterable[int],
    creates: int,
    progress: Callable[[int, Tally], None],
    stop: Stop | None = None,
    disk: PowerDisk | None = None,
) -> Tally:
    """Plays the rounds; returns what they came to together. Raises `Unusable` before the first. With the
    disk on which the server works, its power is cut once in each."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return asyncio.run(_run(server, seed, rounds, creates, progress, stop, disk))


async def _run(server, seed, rounds, creates, progress, stop, disk) -> Tally:
    if stop is not None:
        stop.cancels_this_task()
    whole = Tally()
    keeper = Keeper(server)
    print("starting the server and trying it in fair weather first", flush=True)
    began = time.monotonic()
    await keeper.start_first()
    before = await warm_up(keeper, creates)
    print(f"it works ({time.monotonic() - began:.0f} s): the storm begins", flush=True)
    for number in rounds:
        this = Round(keeper, seed, number, creates, disk)
        try:
            tally = await this.play(before)
        except Exception as error:
            # The server does not come back, or the storm itself is wrong: what was counted is told.
            this.tally.problem("stuck", f"the round was given up: {error!r}")
            whole.add(this.tally)
            progress(number, this.tally)
            break
        if tally.leaked:
            # Told once, not in every round that follows.
            before = await asyncio.to_thread(Traces.settled, server)
        whole.add(tally)
        progress(number, tally)
    return whole


def build_template(server: Server) -> None:
    """One whose sandboxes are of use only when a command in them has run."""
    template = Template().from_template("base")
    template = template.set_start_cmd(
        "sleep 0.8; touch /home/user/started; exec sleep infinity", "test -e /home/user/started"
    )
    try:
        Template.build(template, STARTED_TEMPLATE, api_key=server.key, api_url=server.url)
    except Exception as error:  # whatever the client raises, there is no storm without it
        raise Unusable(f"the server cannot build a template even without a storm: {error}") from error


async def warm_up(keeper: Keeper, creates: int) -> Traces:
    """Fills caches and pools, so that what is counted before is what stays."""
    await asyncio.to_thread(build_template, keeper.server)
    calm = Round(keeper, 0, 0, min(creates, 24))
    calm.plan = replace(calm.plan, blows=[], warm=0, kill_in_the_end=None, room=None)
    calm.client.crowded = False
    await calm.burst()
    await calm.end_all()
    if calm.tally.bad:
        raise Unusable(f"this server does not work even without a storm: {calm.tally.problems[:5]}")
    return await asyncio.to_thread(Traces.settled, keeper.server)
