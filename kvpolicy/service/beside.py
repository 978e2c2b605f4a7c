"""What runs beside requests while the application lives: plans read again, files and store watched, events taken.

Entered by `assembly` around the application's own life; each job is cancelled when that ends, and what must last is
written then.
"""

from __future__ import annotations

import asyncio
import heapq
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

from kvpolicy.service.holding import Holding
from kvpolicy.service.meaning.sessions import Sessions
from kvpolicy.service.outbox import Outbox
from kvpolicy.service.telling import Together
from kvpolicy.workflow.state import RunState

LEAST_TICK_S, LONGEST_TICK_S = 0.002, 1.0
ROOM_S = 0.01  # until an engine may have room again
NEWS_S = 0.02
FORGET_S = 60.0
SILENT_S = 24 * 3600.0
MOST_OWNERS = 200_000  # that are known; clients name them, and each takes some kilobytes
LOOKED_AT = 500  # of them in one step


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
            changed = together.apply_news()
            holding.replan(changed, clock())
            holding.stepped(changed)


async def forget(sessions: Sessions, state: RunState, holding: Holding, clock: Callable[[], float]) -> None:
    """What nothing was heard of for a day is forgotten, again and again, and the longest silent where there are too
    many."""
    while True:
        await asyncio.sleep(FORGET_S)
        with suppress(Exception):
            await sweep(sessions, state, holding, clock())


async def sweep(sessions: Sessions, state: RunState, holding: Holding, now: float, most: int = MOST_OWNERS) -> int:
    """Forget what is old by now; some owners are looked at in one step. Returns how many of them were forgotten."""
    sessions.forget(now)
    holding.replan(state.advance(now), now)
    known, silent = state.owners(), []
    for number, owner in enumerate(known, 1):
        since = state.silent_since(owner)
        if since is not None:
            silent.append((since, number, owner))
        if number % LOOKED_AT == 0:
            await asyncio.sleep(0)
    gone = [row for row in silent if now - row[0] >= SILENT_S]
    if len(known) - len(gone) > most:
        gone = await asyncio.to_thread(heapq.nsmallest, len(known) - most, silent)
    for number, (since, _, owner) in enumerate(gone, 1):
        if state.silent_since(owner) == since:  # nothing was heard of it meanwhile
            state.forget(owner)
            holding.forget(owner)
        if number % LOOKED_AT == 0:
            await asyncio.sleep(0)
    state.runs.reap(now, SILENT_S)
    return len(gone)


@asynccontextmanager
async def signalled(heed: Callable[[], Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
    """SIGHUP reads files anew, where this thread may hear signals. heed: does so."""
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[None]] = set()

    def reload() -> None:
        task = loop.create_task(heed())
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
