"""When protections end, in the engine's time, the same for every plan that says the same end.

A plan says how many seconds are left; told again a moment later, the rest of the way there would make of one end many,
and a hold whose event has come would be another hold. So a plan also says its end on the clock of who made it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

MOST = 16_384
APART_S = 5.0  # more than this no two ways to the engine differ: it is another clock's


class Ends:
    """By whose plan it is, and the end that the plan says."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[Hashable, float], float] = OrderedDict()

    def of(self, owner: Hashable, said: float, computed: float) -> float:
        """The engine's time for an end. computed: what it is by the seconds that are left."""
        key = owner, said
        known = self._known.get(key)
        if known is not None and abs(known - computed) <= APART_S:
            return known
        self._known[key] = computed
        if len(self._known) > MOST:
            self._known.popitem(last=False)
        return computed
