"""Whether engines answer, asked beside requests: `/readyz` says yes only where one has, and soon no when none does.

Run by `app` while the application lives: once at the start, which waits for it for a moment, then again and again. An
engine that takes no connection rests as one does that a request found so; one that takes them again is used at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import aiohttp

from kvpolicy.service.upstreams import Body, Engine, Upstreams

EVERY_S = 1.0
WITHIN_S = 5.0  # of one question; an engine that has requests of ours may take longer
FIRST_S = 2.0  # that the start waits for the first answers
ROUTE = "/health"
BAD = 500  # vLLM answers 503 here when its engine has died; a server without this route answers 404, and so it is there


class Probing:
    """clock: seconds."""

    def __init__(self, upstreams: Upstreams, clock: Callable[[], float]) -> None:
        self._upstreams, self._clock = upstreams, clock

    async def look(self) -> None:
        """Ask every engine once, all at the same time."""
        await asyncio.gather(*(self._ask(engine) for engine in self._upstreams.engines))

    async def first(self) -> None:
        """The same, for a moment at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_S):
                await self.look()

    async def run(self) -> None:
        """Again and again."""
        while True:
            await asyncio.sleep(EVERY_S)
            with suppress(Exception):
                await self.look()

    async def _ask(self, engine: Engine) -> None:
        try:
            async with asyncio.timeout(WITHIN_S):
                answer = await engine.ask("GET", ROUTE, {"connection": "close"}, Body())
            answer.close()
        except TimeoutError:
            engine.answers = engine.answers and engine.running > 0
        except (aiohttp.ClientError, OSError, ValueError):
            now = self._clock()
            if engine.resting_until <= now:
                engine.failed(now)
            engine.answers = False
        else:
            if answer.status < BAD:
                engine.worked()
            else:
                engine.answers = False
