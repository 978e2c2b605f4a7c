"""What replicas of a decision service share: one contract, kept in-process or in Redis.

`contract` says what a store promises, `memory` keeps it in-process (`shelf`: in files, too), `redis` shares it between
replicas and falls back on `memory`; `awaited` is the same for asyncio. `replica` lets a run state agree with those of
the other replicas. The page: docs/store.md. Nothing here loads redis-py but `wire`, which only `redis` imports.
"""

from __future__ import annotations

from kvpolicy.store.contract import Gap, Status, Store, Version
from kvpolicy.store.memory import MemoryStore
from kvpolicy.store.opening import open_store
from kvpolicy.store.record import Record
from kvpolicy.store.settings import Settings

__all__ = ["Gap", "MemoryStore", "Record", "Settings", "Status", "Store", "Version", "open_store"]
