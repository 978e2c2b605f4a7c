"""Pins, idempotency keys and counts in-process, each with its end. Time is an argument.

What has ended is forgotten when somebody asks, and by a sweep over everything now and then, so that nothing only grows.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvpolicy.store.contract import Begun, Entered, Pin, Spent

_SWEEP_EVERY = 1024  # changes
MOST = 200_000  # of a kind; beyond, the oldest ends early

Key = tuple[str, str]  # tenant, name


@dataclass(slots=True)
class _Window:
    number: int
    now: float = 0.0
    before: float = 0.0
    ends: float = 0.0


class Counting:
    """Everything of the store that is a small value with an end."""

    def __init__(self) -> None:
        self._pins: dict[Key, tuple[float, str]] = {}
        self._keys: dict[Key, tuple[float, str | None]] = {}
        self._windows: dict[Key, _Window] = {}
        self._places: dict[Key, dict[str, float]] = {}
        self._changes = 0

    def __len__(self) -> int:
        return len(self._pins) + len(self._keys) + len(self._windows) + len(self._places)

    def pin(self, key: Key, worker: str, ttl: float, move: bool, now: float) -> Pin:
        """See `contract.Store`."""
        held = self._pins.pop(key, None)
        stays = held is not None and held[0] > now and not move
        where = held[1] if held is not None and stays else worker
        self._pins[key] = (now + ttl, where)
        self._swept(now)
        return Pin(where, not stays, False)

    def pinned(self, key: Key, now: float) -> Pin | None:
        """See `contract.Store`."""
        held = self._pins.get(key)
        return None if held is None or held[0] <= now else Pin(held[1], False, False)

    def unpin(self, key: Key) -> None:
        """See `contract.Store`."""
        self._pins.pop(key, None)

    def begin(self, key: Key, ttl: float, now: float) -> Begun:
        """See `contract.Store`."""
        held = self._keys.get(key)
        if held is not None and held[0] > now:
            return Begun(False, held[1], False)
        self._keys.pop(key, None)
        self._keys[key] = (now + ttl, None)
        self._swept(now)
        return Begun(True, None, False)

    def finish(self, key: Key, result: str, ttl: float, now: float) -> None:
        """See `contract.Store`."""
        self._keys.pop(key, None)
        self._keys[key] = (now + ttl, result)
        self._swept(now)

    def abandon(self, key: Key) -> None:
        """See `contract.Store`."""
        held = self._keys.get(key)
        if held is not None and held[1] is None:
            del self._keys[key]

    def spend(self, key: Key, amount: float, limit: float, window: float, now: float) -> Spent:
        """A sliding window made of two fixed ones: of the one before, the part counts that the window still covers."""
        number = int(now // window)
        kept = self._windows.pop(key, None)
        count = _Window(number)
        if kept is not None and kept.number in (number, number - 1):
            count.now, count.before = (kept.now, kept.before) if kept.number == number else (0.0, kept.now)
        covered = 1.0 - (now - number * window) / window
        used = count.before * covered + count.now
        granted = used + amount <= limit
        if granted:
            count.now += amount
        count.ends = (number + 2) * window
        self._windows[key] = count
        self._swept(now)
        return Spent(granted, used + amount if granted else used, False)

    def enter(self, key: Key, holder: str, limit: int, ttl: float, now: float) -> Entered:
        """See `contract.Store`."""
        places = self._places.setdefault(key, {})
        for other in [name for name, ends in places.items() if ends <= now]:
            del places[other]
        granted = holder in places or len(places) < limit
        if granted:
            places[holder] = now + ttl
        self._swept(now)
        inside = len(places)
        if not places:
            self._places.pop(key, None)
        return Entered(granted, inside, False)

    def leave(self, key: Key, holder: str) -> None:
        """See `contract.Store`."""
        places = self._places.get(key)
        if places is not None:
            places.pop(holder, None)
            if not places:
                del self._places[key]

    def _swept(self, now: float) -> None:
        self._changes += 1
        if self._changes % _SWEEP_EVERY:
            return
        self._pins = {key: held for key, held in self._pins.items() if held[0] > now}
        self._keys = {key: held for key, held in self._keys.items() if held[0] > now}
        self._windows = {key: count for key, count in self._windows.items() if count.ends > now}
        self._places = {key: ends for key, ends in self._places.items() if max(ends.values(), default=now) > now}
        for table in (self._pins, self._keys, self._windows, self._places):
            while len(table) > MOST:
                del table[next(iter(table))]
