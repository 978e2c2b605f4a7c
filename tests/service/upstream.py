"""An upstream of the tests' own: raw bytes over sockets, so that each test says exactly what an engine does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"


@dataclass(slots=True)
class Asked:
    """One request as it came. line: the request line."""

    line: str
    headers: list[tuple[str, str]]
    body: bytes

    def named(self, name: str) -> list[str]:
        """The values of a header, in their order."""
        return [value for key, value in self.headers if key == name]


@dataclass(slots=True)
class Upstream:
    """What was asked, and how many connections are open. gone: how many clients left before an answer's end. probed:
    how often the gateway itself asked whether it is there."""

    url: str = ""
    asked: list[Asked] = field(default_factory=list)
    open: int = 0
    gone: int = 0
    probed: int = 0


Answer = Callable[[Asked, asyncio.StreamWriter], Awaitable[None]]


async def plain(_: Asked, writer: asyncio.StreamWriter) -> None:
    """An empty object."""
    writer.write(OK)
    await writer.drain()


async def read_request(reader: asyncio.StreamReader) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    line, *rest = head.rstrip("\r\n").split("\r\n")
    headers = [(name.lower(), value.strip()) for name, _, value in (row.partition(":") for row in rest)]
    told = dict(headers)
    body = b""
    if "content-length" in told:
        body = await reader.readexactly(int(told["content-length"]))
    elif told.get("transfer-encoding") == "chunked":
        while size := int(await reader.readline(), 16):
            body += await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
    return Asked(line, headers, body)


@contextmanager
def upstream(answer: Answer = plain, *, ssl: object = None) -> Iterator[Upstream]:
    """A server on a thread of its own that answers every request with `answer`."""
    found, loop, ready = Upstream(), asyncio.new_event_loop(), threading.Event()
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        found.open += 1
        try:
            while True:
                asked = await read_request(reader)
                if asked.line.startswith("GET /health "):
                    found.probed += 1
                    await plain(asked, writer)
                    continue
                found.asked.append(asked)
                await answer(asked, writer)
        except (ConnectionError, asyncio.CancelledError):
            found.gone += 1
        except asyncio.IncompleteReadError:
            pass
        finally:
            found.open -= 1
            writer.close()

    async def start() -> asyncio.Server:
        return await asyncio.start_server(serve, "127.0.0.1", 0, ssl=ssl)  # type: ignore[arg-type]

    def run() -> None:
        asyncio.set_event_loop(loop)
        server = loop.run_until_complete(start())
        scheme = "https" if ssl else "http"
        found.url = f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        ready.set()
        loop.run_forever()
        server.close()
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    ready.wait(10)
    try:
        yield found
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
