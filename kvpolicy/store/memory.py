"""The in-process store: one replica that shares with nobody. With a folder, what must last is also in files.

The default store, and what `redis` falls back on. Called by any thread; a lock is held for the moment of a change. The
log of records, pins, keys and counts die with the process; versions, documents and the key of the salts do not, where
there is a folder (`lasting`).
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from uuid import uuid4

from kvpolicy.faults import InputFault
from kvpolicy.store.contract import LOCAL, Begun, Entered, Gap, Pin, Spent, Status, lasting, named
from kvpolicy.store.counting import Counting
from kvpolicy.store.lasting import Lasting
from kvpolicy.store.log import KEPT, Log
from kvpolicy.store.record import Record, check, encode


class MemoryStore(Lasting):
    """See `contract.Store`. clock: seconds since 1970; keep: records that a reader may be behind; folder: where what
    must last is written; secret: the key of the salts, at least 16 bytes."""

    def __init__(
        self,
        folder: str | os.PathLike[str] | None = None,
        *,
        clock: Callable[[], float] = time.time,
        keep: int = KEPT,
        secret: bytes | None = None,
    ) -> None:
        super().__init__(folder, clock, secret)
        self.shards = self.replicas = 1
        self._log, self._counting = Log(keep), Counting()

    # --- the store itself ---------------------------------------------------------------------------------

    def status(self) -> Status:
        """See `contract.Store`."""
        return Status(LOCAL, "no other replica is asked", 1, dict(self.counters))

    def close(self) -> None:
        """See `contract.Store`."""

    # --- records ------------------------------------------------------------------------------------------

    def append(self, record: Record) -> None:
        """See `contract.Store`. Raises InputFault for a record that cannot be meant."""
        now = self.now()
        record = check(record).timed(now, uuid4().hex)
        encode(record)  # refused here is refused there
        with self._lock:
            new = self._log.append(record, now)
            self.counters["appended" if new else "duplicates"] += 1

    def take(self, limit: int = 1000) -> list[Record | Gap]:
        """See `contract.Store`."""
        with self._lock:
            return self._log.take(limit)

    def settle(self, budget: float | None = None) -> bool:
        """See `contract.Store`."""
        return True

    # --- sessions, requests, quotas -----------------------------------------------------------------------

    def pin(self, tenant: str, session: str, worker: str, ttl: float, move: bool = False) -> Pin:
        """See `contract.Store`."""
        key = (named("tenant", tenant), named("session", session))
        with self._lock:
            return self._counting.pin(key, named("worker", worker), lasting(ttl), move, self.now())

    def pinned(self, tenant: str, session: str) -> Pin | None:
        """See `contract.Store`."""
        with self._lock:
            return self._counting.pinned((tenant, session), self.now())

    def unpin(self, tenant: str, session: str) -> None:
        """See `contract.Store`."""
        with self._lock:
            self._counting.unpin((tenant, session))

    def begin(self, tenant: str, key: str, ttl: float) -> Begun:
        """See `contract.Store`."""
        with self._lock:
            return self._counting.begin((named("tenant", tenant), named("key", key)), lasting(ttl), self.now())

    def finish(self, tenant: str, key: str, result: str, ttl: float) -> None:
        """See `contract.Store`."""
        if not isinstance(result, str) or len(result) > 16384:
            raise InputFault("the result kept for a retry is a text of at most 16384 characters")
        with self._lock:
            self._counting.finish((named("tenant", tenant), named("key", key)), result, lasting(ttl), self.now())

    def abandon(self, tenant: str, key: str) -> None:
        """See `contract.Store`."""
        with self._lock:
            self._counting.abandon((tenant, key))

    def spend(self, tenant: str, what: str, amount: float, limit: float, window: float) -> Spent:
        """See `contract.Store`."""
        key = (named("tenant", tenant), named("what", what))
        if not 0.0 <= amount < math.inf:
            raise InputFault(f"an amount is a number not below 0, not {amount!r}")
        with self._lock:
            return self._counting.spend(key, amount, limit, lasting(window), self.now())

    def enter(self, tenant: str, what: str, holder: str, limit: int, ttl: float) -> Entered:
        """See `contract.Store`."""
        key = (named("tenant", tenant), named("what", what))
        with self._lock:
            return self._counting.enter(key, named("holder", holder), limit, lasting(ttl), self.now())

    def leave(self, tenant: str, what: str, holder: str) -> None:
        """See `contract.Store`."""
        with self._lock:
            self._counting.leave((tenant, what), holder)
