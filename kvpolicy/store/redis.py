"""The shared store: in Redis while it answers in time, in-process while it does not.

Callers talk to this object, one thread of it talks to the server (`link`), so nothing here waits longer than its
budget, whatever the server does. Make it after a fork, one a process. The face for asyncio is in `awaited`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from concurrent.futures import Future
from uuid import uuid4

from kvpolicy.store import salts
from kvpolicy.store.asks import Asks
from kvpolicy.store.clock import ServerClock
from kvpolicy.store.contract import (
    LOCAL,
    LONGEST_S,
    SHARED,
    Begun,
    Document,
    Entered,
    Gap,
    Pin,
    Published,
    Salt,
    Spent,
    Status,
    Version,
    named,
)
from kvpolicy.store.keys import Keys
from kvpolicy.store.link import Link, settle_now
from kvpolicy.store.memory import MemoryStore
from kvpolicy.store.record import Record, check, encode
from kvpolicy.store.round import Round
from kvpolicy.store.settings import Settings
from kvpolicy.store.wire import connect

DEFAULTS = Settings()


class RedisStore:
    """See `contract.Store`. url: see `wire.connect`. folder: what must last is also written there, so that it outlives
    this process while the server is away; one a process. Raises InputFault for settings that cannot be used; a server
    that cannot be reached is no fault."""

    def __init__(self, url: str, settings: Settings = DEFAULTS, folder: str | os.PathLike[str] | None = None) -> None:
        self.settings, self.shards = settings, settings.shards
        keys = Keys(settings.prefix, settings.shards)
        clock = ServerClock()
        self.local = MemoryStore(folder, clock=clock.now, secret=settings.secret)
        self.replica = named("replica", settings.replica or uuid4().hex[:12])
        self._round = Round(keys, self.replica, self.local, clock, settings)
        connect(url, settings.timeout).close()  # so that a wrong address is told now
        self.asks = Asks(self._round)
        self.link = Link(lambda: connect(url, settings.timeout), self._round, settings.poll)
        self.link.first_try(settings.timeout)

    # --- the store itself ---------------------------------------------------------------------------------

    def now(self) -> float:
        """See `contract.Store`."""
        return self._round.clock.now()

    @property
    def replicas(self) -> int:
        """See `contract.Store`."""
        return self._round.replicas

    def status(self) -> Status:
        """See `contract.Store`."""
        breaker, counters = self.link.breaker, dict(self.local.counters)
        counters["unreadable_records"] = sum(stream.unreadable for stream in self._round.feed.streams)
        if breaker.closed:
            return Status(SHARED, "", self.replicas, counters)
        return Status(LOCAL, breaker.reason, self.replicas, counters)

    def close(self) -> None:
        """See `contract.Store`."""
        self.link.close(self.settings.patience)

    # --- records ------------------------------------------------------------------------------------------

    def append(self, record: Record) -> None:
        """See `contract.Store`. Raises InputFault for a record that cannot be meant."""
        now = self.now()
        record = check(record).timed(now, uuid4().hex)
        self._round.feed.append(record, encode(record), self.link.breaker.asks, now)
        self.link.wake()

    def take(self, limit: int = 1000) -> list[Record | Gap]:
        """See `contract.Store`."""
        return self._round.feed.take(limit)

    def settle(self, budget: float | None = None) -> bool:
        """See `contract.Store`."""
        future = self._settled()
        return self._ends(settle_now(future, self.settings.budget if budget is None else budget))

    async def settled(self, budget: float | None = None) -> bool:
        """`settle` for asyncio."""
        future = asyncio.wrap_future(self._settled())
        done, _ = await asyncio.wait((future,), timeout=self.settings.budget if budget is None else budget)
        if not done:
            future.cancel()
        return self._ends(future.result() if done else None)

    def _settled(self) -> Future[bool]:
        future = self._round.feed.settled()
        if not future.done() and not self.link.breaker.asks:
            self._round.feed.deliver_early()
        return future

    def _ends(self, well: bool | None) -> bool:
        if well is None:
            self.link.late()
            self._round.feed.deliver_early()
        return bool(well) and self.link.breaker.asks

    # --- versions -----------------------------------------------------------------------------------------

    def publish(self, name: str, files: Mapping[str, str], expect: int | None = None) -> Published:
        """See `contract.Store`."""
        return self.link.settle(self.asks.publish(name, files, expect), self.settings.patience)

    def roll_back(self, name: str, to: int | None = None) -> Published:
        """See `contract.Store`."""
        return self.link.settle(self.asks.roll_back(name, to), self.settings.patience)

    def policy(self, name: str) -> Version | None:
        """See `contract.Store`."""
        return self.local.policy(name)

    # --- documents ----------------------------------------------------------------------------------------

    def keep(self, kind: str, tenant: str, source: str, body: Mapping[str, object], ttl: float = LONGEST_S) -> bool:
        """See `contract.Store`."""
        return self.link.settle(self.asks.keep(kind, tenant, source, body, ttl), self.settings.patience)

    def kept(self, kind: str, tenant: str) -> tuple[Document, ...]:
        """See `contract.Store`."""
        return self.link.settle(self.asks.kept(kind, tenant), self.settings.patience)

    # --- sessions, requests, quotas -----------------------------------------------------------------------

    def pin(self, tenant: str, session: str, worker: str, ttl: float, move: bool = False) -> Pin:
        """See `contract.Store`."""
        return self.link.settle(self.asks.pin(tenant, session, worker, ttl, move), self.settings.budget)

    def pinned(self, tenant: str, session: str) -> Pin | None:
        """See `contract.Store`."""
        return self.link.settle(self.asks.pinned(tenant, session), self.settings.budget)

    def unpin(self, tenant: str, session: str) -> None:
        """See `contract.Store`."""
        self.link.post(self.asks.unpin(tenant, session))

    def begin(self, tenant: str, key: str, ttl: float) -> Begun:
        """See `contract.Store`."""
        return self.link.settle(self.asks.begin(tenant, key, ttl), self.settings.budget)

    def finish(self, tenant: str, key: str, result: str, ttl: float) -> None:
        """See `contract.Store`."""
        self.link.post(self.asks.finish(tenant, key, result, ttl))

    def abandon(self, tenant: str, key: str) -> None:
        """See `contract.Store`."""
        self.link.post(self.asks.abandon(tenant, key))

    def spend(self, tenant: str, what: str, amount: float, limit: float, window: float) -> Spent:
        """See `contract.Store`."""
        return self.link.settle(self.asks.spend(tenant, what, amount, limit, window), self.settings.budget)

    def enter(self, tenant: str, what: str, holder: str, limit: int, ttl: float) -> Entered:
        """See `contract.Store`."""
        return self.link.settle(self.asks.enter(tenant, what, holder, limit, ttl), self.settings.budget)

    def leave(self, tenant: str, what: str, holder: str) -> None:
        """See `contract.Store`."""
        self.link.post(self.asks.leave(tenant, what, holder))

    # --- salts --------------------------------------------------------------------------------------------

    def salt(self, tenant: str) -> Salt:
        """See `contract.Store`. Until the key was heard once, each request gets a salt of its own."""
        return salts.salt(self.local.secret, named("tenant", tenant), self.local.policy(salts.BOARD))

    def renew_salt(self, tenant: str) -> bool:
        """See `contract.Store`. False: another replica renewed one at the same time, or the key is not known."""
        if self.local.secret is None:
            return False
        there = self.local.policy(salts.BOARD)
        files = salts.renewed(self.local.secret, named("tenant", tenant), there)
        return self.publish(salts.BOARD, files, 0 if there is None else there.serial).accepted
