"""How much of one room each tenant takes, in marks, and who has to give up what where it is full.

What is kept for tenants (`held`: runs, `followed`: graphs) is told here by its key. The tenant that holds most gives up
first, and of its own what was unheard-of for longest; among tenants that hold as much, the one unheard-of for longest.
Every call takes as long whether there is one tenant or a hundred thousand.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Shares(Generic[K]):
    """Keys by tenant with their marks. marks: of all of them."""

    __slots__ = ("_by_marks", "_most", "_tenants", "marks")

    def __init__(self) -> None:
        self.marks = 0
        self._tenants: dict[str | None, _Share[K]] = {}
        self._by_marks: dict[int, OrderedDict[str | None, None]] = {}  # who holds so much, unheard-of for longest first
        self._most: list[int] = []  # a heap of those numbers, negative; some of them nobody holds any more

    def __len__(self) -> int:
        return len(self._tenants)

    def hear(self, tenant: str | None, key: K) -> None:
        """Something is heard of what is kept under this key."""
        share = self._tenants[tenant]
        share.keys.move_to_end(key)
        self._by_marks[share.marks].move_to_end(tenant)

    def add(self, tenant: str | None, key: K, marks: int) -> None:
        """This is kept from now on, under a key that was not."""
        share = self._tenants.get(tenant)
        if share is None:
            share = self._tenants[tenant] = _Share()
        else:
            self._leave(tenant, share.marks)
        share.keys[key] = marks
        share.marks += marks
        self.marks += marks
        self._enter(tenant, share.marks)

    def drop(self, tenant: str | None, key: K) -> None:
        """This is kept no longer."""
        share = self._tenants[tenant]
        self._leave(tenant, share.marks)
        marks = share.keys.pop(key)
        share.marks -= marks
        self.marks -= marks
        if share.keys:
            self._enter(tenant, share.marks)
        else:
            del self._tenants[tenant]

    def first(self) -> tuple[str | None, K] | None:
        """Who has to give up what; None where nothing is kept."""
        # INVARIANT: a tenant that holds less than another gives up nothing.
        while self._most and -self._most[0] not in self._by_marks:
            heapq.heappop(self._most)
        if not self._most:
            return None
        tenant = next(iter(self._by_marks[-self._most[0]]))
        return tenant, next(iter(self._tenants[tenant].keys))

    def _enter(self, tenant: str | None, marks: int) -> None:
        holders = self._by_marks.get(marks)
        if holders is None:
            holders = self._by_marks[marks] = OrderedDict()
            heapq.heappush(self._most, -marks)
            if len(self._most) > 2 * len(self._by_marks) + 64:
                self._most = [-held for held in self._by_marks]
                heapq.heapify(self._most)
        holders[tenant] = None

    def _leave(self, tenant: str | None, marks: int) -> None:
        holders = self._by_marks[marks]
        del holders[tenant]
        if not holders:
            del self._by_marks[marks]


class _Share(Generic[K]):
    """What one tenant holds: marks by key, what was unheard-of for longest first. A dict would look for its first key
    past all that have gone."""

    __slots__ = ("keys", "marks")

    def __init__(self) -> None:
        self.keys: OrderedDict[K, int] = OrderedDict()
        self.marks = 0
