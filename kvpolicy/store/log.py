"""Records in order of their coming, for one reader, in-process. Keys of records are known again for ten minutes.

Used by `memory` for everything and by `redis` while nobody else can be told.
"""

from __future__ import annotations

from collections import OrderedDict, deque

from kvpolicy.store.contract import Gap
from kvpolicy.store.record import Record

KEPT = 50_000  # records that a reader may be behind
KEY_WINDOW_S = 600.0
MOST_KEYS = 200_000


class Seen:
    """Keys of records, the oldest first; bounded in time and number."""

    __slots__ = ("_keys", "_most")

    def __init__(self, most: int = MOST_KEYS) -> None:
        self._keys: OrderedDict[str, float] = OrderedDict()  # a dict finds its first key past all that have gone
        self._most = most

    def first(self, key: str, now: float) -> bool:
        """Whether this key is new; it is known from now on."""
        keys = self._keys
        while keys:
            if len(keys) <= self._most and keys[next(iter(keys))] > now - KEY_WINDOW_S:
                break
            keys.popitem(last=False)
        if key in keys:
            return False
        keys[key] = now
        return True


class Log:
    """The latest `keep` records that have not been taken."""

    def __init__(self, keep: int = KEPT) -> None:
        self.keep = keep
        self._waiting: deque[Record] = deque()
        self._lost = 0
        self._seen = Seen()

    def append(self, record: Record, now: float) -> bool:
        """Add a record that has a time and a key; False: it is known already."""
        if not self._seen.first(record.key or "", now):
            return False
        self._waiting.append(record)
        if len(self._waiting) > self.keep:
            self._waiting.popleft()
            self._lost += 1
        return True

    def take(self, limit: int) -> list[Record | Gap]:
        """The oldest `limit`, after a gap where some were given up."""
        taken: list[Record | Gap] = []
        if self._lost:
            taken.append(Gap(0, self._lost, "the reader was too far behind"))
            self._lost = 0
        while self._waiting and len(taken) < limit:
            taken.append(self._waiting.popleft())
        return taken
