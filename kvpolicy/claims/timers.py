"""One heap of times at which something of the ledger lapses.

Armed by the ledger, one time per key; a key that is armed for later costs nothing until its old time comes up.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from math import inf
from typing import Generic, TypeVar

Key = TypeVar("Key")


class Timers(Generic[Key]):
    """Keys with the time (seconds) at which each wants to be looked at."""

    __slots__ = ("_due", "_heap", "_queued", "_turn")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Key]] = []
        self._due: dict[Key, float] = {}
        self._queued: dict[Key, float] = {}  # the earliest time at which the key stands in the heap
        self._turn = 0

    def __len__(self) -> int:
        return len(self._due)

    @property
    def queued(self) -> int:
        """Entries in the heap, stale ones included."""
        return len(self._heap)

    def arm(self, key: Key, at: float) -> None:
        """Want `key` looked at at `at`, and at no other time; inf: never."""
        if at == inf:
            self.disarm(key)
            return
        self._due[key] = at
        if at < self._queued.get(key, inf):
            self._push(key, at)

    def disarm(self, key: Key) -> None:
        """Forget `key`; one that is not armed does nothing."""
        if self._due.pop(key, None) is not None:
            self._queued.pop(key, None)
            self._compact()

    def put_off(self, key: Key, at: float) -> None:
        """Want `key`, if it is armed for earlier, looked at at `at` instead."""
        if self._due.get(key, inf) < at:
            self._due[key] = at

    def next(self) -> float:
        """The earliest time anything is armed for; inf for none."""
        heap = self._heap
        while heap:
            at, _, key = heap[0]
            if self._queued.get(key) != at:
                heappop(heap)  # stale: disarmed, or armed for earlier since
                continue
            due = self._due[key]
            if due == at:
                return at
            heappop(heap)
            self._push(key, due)
        return inf

    def pop(self, now: float) -> tuple[float, Key] | None:
        """The next key whose time has come (at <= now: expired at its end), disarmed; None when there is none."""
        if not self._heap or self._heap[0][0] > now or self.next() > now:
            return None
        at, _, key = heappop(self._heap)
        del self._due[key], self._queued[key]
        return at, key

    def _push(self, key: Key, at: float) -> None:
        self._turn += 1
        self._queued[key] = at
        heappush(self._heap, (at, self._turn, key))
        self._compact()

    def _compact(self) -> None:
        if len(self._heap) > 2 * len(self._due) + 64:
            self._heap = [entry for entry in self._heap if self._queued.get(entry[2]) == entry[0]]
            heapify(self._heap)
