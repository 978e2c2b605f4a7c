"""Who is at work in a run: one that begins beside another of its name is to be a branch, an owner of its own.

Used by adapters of frameworks in which agents or steps of one name go on at once, in tasks and in threads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from threading import Lock
from weakref import WeakKeyDictionary

from kvpolicy.runs import Run

_lock = Lock()


class AtWork:
    """Those at work in one run. keys: each by its key, with its name and its number among all of that name."""

    def __init__(self) -> None:
        self.keys: dict[Hashable, tuple[str | None, int]] = {}
        self._begun: Counter[str | None] = Counter()
        self._now: Counter[str | None] = Counter()

    def begins(self, name: str | None, key: Hashable) -> tuple[int, bool]:
        """`key` goes on under this name, and under no other. Its number among all that began under it in the run, from
        0, and whether another of them is at work. A key holds no run: what it holds stays until the run is gone."""
        with _lock:
            known = self.keys.get(key)
            if known is None or known[0] != name:
                self._end(key)
                known = self.keys[key] = (name, self._begun[name])
                self._begun[name] += 1
                self._now[name] += 1
            return known[1], self._now[name] > 1

    def ends(self, *keys: Hashable) -> None:
        """They go on no more, if they did."""
        with _lock:
            for key in keys:
                self._end(key)

    def _end(self, key: Hashable) -> None:
        known = self.keys.pop(key, None)
        if known is not None:
            self._now[known[0]] -= 1


_runs: WeakKeyDictionary[Run, AtWork] = WeakKeyDictionary()


def at_work(run: Run) -> AtWork:
    """Those at work in a run, in all its tasks and threads."""
    with _lock:
        return _runs.setdefault(run, AtWork())
