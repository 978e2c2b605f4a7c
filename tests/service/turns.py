"""How often others had their turn during a call: a coroutine beside it counts, and no time is measured."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any


def turns(call: Callable[[], Awaitable[Any]]) -> tuple[int, Any]:
    """How often something else had its turn during a call, and what the call returned."""

    async def both() -> tuple[int, Any]:
        had = 0

        async def beside() -> None:
            nonlocal had
            while True:
                await asyncio.sleep(0)
                had += 1

        task = asyncio.create_task(beside())
        await asyncio.sleep(0)
        before = had
        try:
            found = await call()
            return had - before, found
        finally:
            task.cancel()

    return asyncio.run(both())
