"""The set of values that a selector's conditions leave to one attribute: inclusion and emptiness, decided exactly.

Made from bracket conditions (`depth > 3`, `tool in {grep, ls}`), read by `order`. A domain says "present, and one of
these": an absent attribute is in none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from kvpolicy import words

_WHOLE_TYPES = ("int", "tokens")
_SMALL = 64  # a whole range no longer than this is written out when it is compared with a list

_CLOSED: dict[str, frozenset[object]] = {
    "status": frozenset(words.STATUSES),
    "bool": frozenset((True, False)),
}


@dataclass(frozen=True, slots=True)
class Domain:
    """Values within [low, high] (open where said), in `allowed` where that is a set, and not in `excluded`.

    Strings know no range; whole numbers keep their ends closed.
    """

    whole: bool = False
    allowed: frozenset[object] | None = None
    excluded: frozenset[object] = frozenset()
    low: float = -math.inf
    high: float = math.inf
    low_open: bool = False
    high_open: bool = False

    def holds(self, value: object) -> bool:
        """Whether a value is in the domain."""
        if value in self.excluded or (self.allowed is not None and value not in self.allowed):
            return False
        if self.low == -math.inf and self.high == math.inf:
            return True
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        above = value > self.low if self.low_open else value >= self.low
        return above and (value < self.high if self.high_open else value <= self.high)

    def members(self) -> frozenset[object] | None:
        """All values of it where they are few and known, else None."""
        if self.allowed is not None:
            return frozenset(v for v in self.allowed if self.holds(v))
        if self.low == self.high:
            return frozenset((self.low,)) if self.holds(self.low) else frozenset()
        if self.whole and self.high - self.low < _SMALL:
            values = range(math.ceil(self.low), math.floor(self.high) + 1)
            return frozenset(v for v in values if self.holds(v))
        return None

    @property
    def empty(self) -> bool:
        """Whether no value is left."""
        members = self.members()
        if members is not None:
            return not members
        return self.low > self.high

    def within(self, other: Domain) -> bool:
        """Whether every value of this one is in `other`."""
        members = self.members()
        if members is not None:
            return all(other.holds(v) for v in members)
        if other.allowed is not None:
            return False
        low_in = self.low > other.low or (self.low == other.low and (self.low_open or not other.low_open))
        high_in = self.high < other.high or (self.high == other.high and (self.high_open or not other.high_open))
        return low_in and high_in and not any(self.holds(v) for v in other.excluded)

    def meet(self, other: Domain) -> Domain:
        """The values in both."""
        allowed = self.allowed if other.allowed is None else other.allowed
        if self.allowed is not None and other.allowed is not None:
            allowed = self.allowed & other.allowed
        low, low_open = max((self.low, self.low_open), (other.low, other.low_open))
        high, high_open = min((self.high, not self.high_open), (other.high, not other.high_open))
        return Domain(
            self.whole or other.whole, allowed, self.excluded | other.excluded, low, high, low_open, not high_open
        )


def domain(attribute: str, operator: str, values: tuple[object, ...]) -> Domain:
    """The domain of one condition; several on one attribute meet."""
    kind = words.EVENT_ATTRIBUTES.get(attribute, "string")
    base = Domain(whole=kind in _WHOLE_TYPES, allowed=_CLOSED.get(kind))
    value = values[0] if values else None
    if operator in ("=", "in"):
        return base.meet(Domain(allowed=frozenset(values)))
    if operator == "!=":
        return base.meet(Domain(excluded=frozenset(values)))
    if isinstance(value, bool) or not isinstance(value, int | float):
        return replace(base, allowed=frozenset())  # an order on what has none: nothing
    bound = float(value)
    if operator in ("<", "<="):
        return _closed(replace(base, high=bound, high_open=operator == "<"))
    return _closed(replace(base, low=bound, low_open=operator == ">"))


def _closed(found: Domain) -> Domain:
    """Whole numbers: `> 3` is `>= 4`."""
    if not found.whole:
        return found
    low, high = found.low, found.high
    if low > -math.inf:
        low = math.floor(low) + 1 if found.low_open else math.ceil(low)
    if high < math.inf:
        high = math.ceil(high) - 1 if found.high_open else math.floor(high)
    return replace(found, low=low, high=high, low_open=False, high_open=False)
