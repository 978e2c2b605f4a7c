"""What tests of the store tell it, and what it says of itself."""

from __future__ import annotations

from typing import Any

from kvpolicy.request import Owner
from kvpolicy.store.link import Link
from kvpolicy.store.record import Record
from kvpolicy.store.redis import RedisStore

S = Owner("t", "s")
QUICK: dict[str, Any] = {"budget": 0.02, "patience": 0.1, "timeout": 0.2}


def record(number: int, **fields: Any) -> Record:
    return Record("event", S, {"number": number}, **fields)


def numbers(store: RedisStore) -> list[object]:
    return [r.body["number"] for r in store.take() if isinstance(r, Record)]


def is_shared(store: RedisStore) -> bool:
    return store.status().mode == "shared"


def count(store: RedisStore, name: str) -> int:
    return store.status().counters.get(name, 0)


def reopened(store: RedisStore) -> RedisStore:
    """The same replica with a new thread, as after a long time without a connection."""
    old = store.link
    store.link = Link(old._connect, store._round, store.settings.poll)
    return store
