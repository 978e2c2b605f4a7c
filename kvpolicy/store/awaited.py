"""The store for asyncio: the calls that may wait, awaited, so that they never hold up the event loop.

What never waits (`now append take policy salt status unpin finish abandon leave`) is called on the store itself: it is
here as `store`. What is also written to files (versions, documents) is written in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

from kvpolicy.store.contract import LONGEST_S, Begun, Document, Entered, Pin, Published, Spent
from kvpolicy.store.memory import MemoryStore

if TYPE_CHECKING:  # an in-process store does without redis-py
    from kvpolicy.store.ask import Ask
    from kvpolicy.store.asks import Asks
    from kvpolicy.store.link import Link
    from kvpolicy.store.redis import RedisStore

T = TypeVar("T")


class AwaitedStore:
    """`contract.Store` for coroutines."""

    def __init__(self, store: MemoryStore | RedisStore) -> None:
        self.store = store
        self._memory = store if isinstance(store, MemoryStore) else store.local
        self._redis = None if isinstance(store, MemoryStore) else store
        self._asks: Asks | None = None if self._redis is None else self._redis.asks
        self._link: Link | None = None if self._redis is None else self._redis.link

    async def settle(self, budget: float | None = None) -> bool:
        """See `contract.Store`."""
        if self._redis is None:
            return True
        return await self._redis.settled(budget)

    async def publish(self, name: str, files: Mapping[str, str], expect: int | None = None) -> Published:
        """See `contract.Store`."""
        return await asyncio.to_thread(self.store.publish, name, files, expect)

    async def roll_back(self, name: str, to: int | None = None) -> Published:
        """See `contract.Store`."""
        return await asyncio.to_thread(self.store.roll_back, name, to)

    async def keep(
        self, kind: str, tenant: str, source: str, body: Mapping[str, object], ttl: float = LONGEST_S
    ) -> bool:
        """See `contract.Store`."""
        return await asyncio.to_thread(self.store.keep, kind, tenant, source, body, ttl)

    async def kept(self, kind: str, tenant: str) -> tuple[Document, ...]:
        """See `contract.Store`."""
        if self._asks is None:
            return self._memory.kept(kind, tenant)
        return await self._patient(self._asks.kept(kind, tenant))

    async def renew_salt(self, tenant: str) -> bool:
        """See `contract.Store`."""
        return await asyncio.to_thread(self.store.renew_salt, tenant)

    async def pin(self, tenant: str, session: str, worker: str, ttl: float, move: bool = False) -> Pin:
        """See `contract.Store`."""
        if self._asks is None:
            return self._memory.pin(tenant, session, worker, ttl, move)
        return await self._soon(self._asks.pin(tenant, session, worker, ttl, move))

    async def pinned(self, tenant: str, session: str) -> Pin | None:
        """See `contract.Store`."""
        if self._asks is None:
            return self._memory.pinned(tenant, session)
        return await self._soon(self._asks.pinned(tenant, session))

    async def begin(self, tenant: str, key: str, ttl: float) -> Begun:
        """See `contract.Store`."""
        if self._asks is None:
            return self._memory.begin(tenant, key, ttl)
        return await self._soon(self._asks.begin(tenant, key, ttl))

    async def spend(self, tenant: str, what: str, amount: float, limit: float, window: float) -> Spent:
        """See `contract.Store`."""
        if self._asks is None:
            return self._memory.spend(tenant, what, amount, limit, window)
        return await self._soon(self._asks.spend(tenant, what, amount, limit, window))

    async def enter(self, tenant: str, what: str, holder: str, limit: int, ttl: float) -> Entered:
        """See `contract.Store`."""
        if self._asks is None:
            return self._memory.enter(tenant, what, holder, limit, ttl)
        return await self._soon(self._asks.enter(tenant, what, holder, limit, ttl))

    async def close(self) -> None:
        """See `contract.Store`."""
        await asyncio.to_thread(self.store.close)

    async def _soon(self, ask: Ask[T]) -> T:
        assert self._redis is not None and self._link is not None
        return await self._link.settled(ask, self._redis.settings.budget)

    async def _patient(self, ask: Ask[T]) -> T:
        assert self._redis is not None and self._link is not None
        return await self._link.settled(ask, self._redis.settings.patience)
