"""What runs beside requests while the application lives: plans read again, files and store watched, events taken.

Entered by `assembly` around the application's own life; each job is cancelled when that ends, and what must last is
written then.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

from kvpolicy.service.holding import Holding
from kvpolicy.service.meaning.sessions import Sessions
from kvpolicy.service.outbox import Outbox
from kvpolicy.service.reloading import Reloading
from kvpolicy.service.telling import Together
from kvpolicy.workflow.state import RunState

LEAST_TICK_S, LONGEST_TICK_S = 0.002, 1.0
ROOM_S = 0.01  # until an engine may have room again
NEWS_S = 0.02
FORGET_S = 60.0


@asynccontextmanager
async def running(*jobs: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Jobs side by side, until the block ends."""
    tasks = [asyncio.get_running_loop().create_task(job) for job in jobs]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def tick(holding: Holding, outbox: Outbox, clock: Callable[[], float]) -> None:
    """Plans are read again when they are due, whether requests come or not; what engines had no room for goes out.

    # INVARIANT: what becomes due while this sleeps wakes it; what is due by then is in the answer of `Holding.tick`.
    """
    while True:
        wait = LONGEST_TICK_S
        with suppress(Exception):
            wait = min(holding.tick(clock()), LONGEST_TICK_S)
        with suppress(Exception):
            wait = 0.0 if outbox.pump() else min(wait, ROOM_S) if outbox else wait
        holding.sooner.clear()
        await asyncio.sleep(LEAST_TICK_S)  # requests go on between two steps, however much is due
        with suppress(TimeoutError):
            async with asyncio.timeout(max(wait - LEAST_TICK_S, 0)):
                await holding.sooner.wait()


async def hear(together: Together, holding: Holding, clock: Callable[[], float]) -> None:
    """What other replicas tell, as it comes."""
    while True:
        await asyncio.sleep(NEWS_S)
        with suppress(Exception):
            holding.replan(together.apply_news(), clock())


async def forget(sessions: Sessions, state: RunState, holding: Holding, clock: Callable[[], float]) -> None:
    """What nothing was heard of for a day is forgotten, again and again."""
    while True:
        await asyncio.sleep(FORGET_S)
        with suppress(Exception):
            sweep(sessions, state, holding, clock())


def sweep(sessions: Sessions, state: RunState, holding: Holding, now: float) -> int:
    """Forget what is old by now. Returns how many owners that were."""
    sessions.forget(now)
    holding.replan(state.advance(now), now)
    gone = state.reap()
    for owner in gone:
        holding.forget(owner)
    return len(gone)


@asynccontextmanager
async def signalled(reloading: Reloading) -> AsyncIterator[None]:
    """SIGHUP reads policies anew, where this thread may hear signals."""
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[None]] = set()

    def reload() -> None:
        task = loop.create_task(reloading.signalled())
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    heard = False
    with suppress(NotImplementedError, RuntimeError, ValueError):
        loop.add_signal_handler(signal.SIGHUP, reload)
        heard = True
    try:
        yield
    finally:
        if heard:
            with suppress(RuntimeError, ValueError):
                loop.remove_signal_handler(signal.SIGHUP)
