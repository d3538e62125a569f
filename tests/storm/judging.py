"""What a storm and its power cuts judge alike."""

import asyncio
from typing import Awaitable, Callable, Iterable, TypeVar

from storm import wire
from storm.client import LOOK, Client, Sandbox

AT_ONCE = 32
Item = TypeVar("Item")


async def events_of(client: Client, sandbox: Sandbox) -> tuple[wire.Answer, list[tuple[str, str | None]]]:
    """What its owner heard of its beginning and its end, with the reason."""
    path = f"/events/sandboxes/{sandbox.id}?types=created&types=killed&orderAsc=true"
    told, _ = await client.insist("GET", path, LOOK)
    events = told.json() if told.status == 200 else []
    return told, [(each["type"].rpartition(".")[2], each["eventData"].get("reason")) for each in events]


def reasons_for(end_asked: bool, struck: bool) -> set[str]:
    """What may be said of a sandbox that is gone. Never that it was lost, whenever the server was
    killed: whoever ends one writes down why before anything of it goes."""
    return ({"killed"} if end_asked else set()) | ({"died"} if struck else set())


async def for_each(items: Iterable[Item], work: Callable[[Item], Awaitable[None]]) -> None:
    """Some at a time. The work of one is made when its turn comes: if the storm is stopped before,
    there is nothing that nobody has awaited."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(item: Item) -> None:
        async with gate:
            await work(item)

    await asyncio.gather(*(one(item) for item in items))
