"""Storms: round after round against one server."""

import asyncio
import resource
from pathlib import Path
from typing import Callable, Iterable

from storm.keeper import Keeper
from storm.rounds import Round
from storm.tally import Tally
from storm.traces import Traces
from support.server import Server


def server_for(data: Path, creates: int) -> Server:
    # Creates that are cut may have made a sandbox, and are asked for again.
    return Server(data, extra=["--max-sandboxes", str(min(4000, 4 * creates + 64))])


def run(
    server: Server, seed: int, rounds: Iterable[int], creates: int, progress: Callable[[int, Tally], None]
) -> Tally:
    """Plays the rounds; returns what they came to together."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return asyncio.run(_run(server, seed, rounds, creates, progress))


async def _run(server, seed, rounds, creates, progress) -> Tally:
    whole = Tally()
    keeper = Keeper(server)
    await keeper.start(whole)
    before = await warm_up(keeper, creates)
    for number in rounds:
        tally = await Round(keeper, seed, number, creates).play(before)
        if tally.leaked:
            # Told once, not in every round that follows.
            before = await asyncio.to_thread(Traces.settled, server)
        whole.add(tally)
        progress(number, tally)
    return whole


async def warm_up(keeper: Keeper, creates: int) -> Traces:
    """Fills caches and pools, so that what is counted before is what stays."""
    calm = Round(keeper, 0, 0, min(creates, 24))
    calm.plan.blows.clear()
    await calm.burst()
    await calm.end_all()
    if calm.tally.bad:
        raise RuntimeError(f"this server does not work even without a storm: {calm.tally.problems[:5]}")
    return await asyncio.to_thread(Traces.settled, keeper.server)
