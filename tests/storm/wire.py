"""One HTTP request over a connection of its own, as light as a thousand at once need it."""

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import h11

CHUNK = 1 << 16


class Cut(Exception):
    """The connection ended before the answer was whole."""


class Unreachable(Cut):
    """Nobody listens."""


class Late(Exception):
    """No whole answer within the request's bound."""


class HungUp(Exception):
    """We closed the connection, as planned."""


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes
    took: float

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def retry_after(self) -> float | None:
        value = self.headers.get("retry-after")
        return float(value) if value else None

    @property
    def error(self) -> dict[str, Any]:
        """The body of an error; empty when it is none of ours."""
        try:
            found = self.json()
        except ValueError:
            return {}
        return found if isinstance(found, dict) and "message" in found and "code" in found else {}

    def __str__(self) -> str:
        return f"{self.status} {self.body[:300].decode(errors='replace')}"


async def call(
    port: int,
    method: str,
    path: str,
    headers: dict[str, str] | None = None,
    body: bytes = b"",
    within: float = 30,
    hang_up_after: float | None = None,
) -> Answer:
    began = asyncio.get_running_loop().time()
    bound = within if hang_up_after is None else min(within, hang_up_after)
    try:
        async with asyncio.timeout(bound):
            status, fields, content = await _exchange(port, method, path, headers or {}, body)
    except TimeoutError:
        if bound < within:
            raise HungUp from None
        raise Late(f"{method} {path}: no answer within {within:.0f} s") from None
    except ConnectionRefusedError as error:
        raise Unreachable(f"{method} {path}: {error}") from None
    except (OSError, h11.RemoteProtocolError) as error:
        raise Cut(f"{method} {path}: {error or type(error).__name__}") from None
    return Answer(status, fields, content, asyncio.get_running_loop().time() - began)


async def _exchange(
    port: int, method: str, path: str, headers: dict[str, str], body: bytes
) -> tuple[int, dict[str, str], bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        protocol = h11.Connection(h11.CLIENT)
        fields = {"Host": f"127.0.0.1:{port}", "Content-Length": str(len(body)), "Connection": "close"} | headers
        request = h11.Request(method=method, target=path, headers=list(fields.items()))
        writer.write(protocol.send(request) + protocol.send(h11.Data(data=body)) + protocol.send(h11.EndOfMessage()))
        await writer.drain()
        status, answered, parts = 0, {}, []
        while True:
            event = protocol.next_event()
            if event is h11.NEED_DATA:
                # Empty at the end of the connection, which h11 takes for that.
                protocol.receive_data(await reader.read(CHUNK))
            elif isinstance(event, h11.Response):
                status = event.status_code
                answered = {name.decode(): value.decode(errors="replace") for name, value in event.headers}
            elif isinstance(event, h11.Data):
                parts.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage):
                return status, answered, b"".join(parts)
    finally:
        # Not closed politely: nobody waits for it, and one that hangs up does not say good-bye.
        writer.transport.abort()
