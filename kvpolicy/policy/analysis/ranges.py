"""The values that conditions leave to one attribute, for many matches at once: who meets whom, who lies within whom.

Read by `crossing`. Sets, their opposites and ranges are looked up by their members and ends, so that asking for one
match costs as much as it has members, however many other matches there are.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import chain, combinations
from math import inf

from kvpolicy.policy.domain import Domain

_LISTED = 6  # a set of so many members is looked up by its subsets
_LONGEST = 64  # `Domain.within` compares ranges no longer than this with sets
End = tuple[float, int]  # a value, and 1 or -1 where the range begins above or ends below it


class Values:
    """One attribute. `domains`: the distinct ones; `have`: the matches that have each. None of them is empty.

    `rough`: the matches for which `wider` and `narrower` say too little.
    """

    def __init__(self, domains: Sequence[Domain], have: Sequence[int], few: int) -> None:
        self._domains, self._have = domains, have
        self._known: dict[tuple[str, int], int] = {}
        self.rough = 0
        self.all = 0
        for bits in have:
            self.all |= bits
        self._few = len(domains) <= few
        if not self._few:
            self._lay_out()

    def meeting(self, at: int) -> int:
        """The matches that some value of the domain fits, or more."""
        if not self._few:
            return self._meeting(self._domains[at])
        one = self._domains[at]
        return self._filter("meet", at, (bits for d, bits in self._pairs() if not one.meet(d).empty))

    def meeting_of(self, domain: Domain) -> int:
        """`meeting`, of a domain that no match has."""
        if not self._few:
            return self._meeting(domain)
        found = 0
        for other, bits in self._pairs():
            found |= 0 if domain.meet(other).empty else bits
        return found

    def wider(self, at: int) -> int:
        """The matches that every value of the domain fits."""
        if not self._few:
            return self._wider(self._domains[at], self._have[at])
        one = self._domains[at]
        return self._filter("wider", at, (bits for d, bits in self._pairs() if one.within(d)))

    def narrower(self, at: int) -> int:
        """The matches whose every value is in the domain."""
        if not self._few:
            return self._narrower(self._domains[at], self._have[at])
        one = self._domains[at]
        return self._filter("narrower", at, (bits for d, bits in self._pairs() if d.within(one)))

    def _pairs(self) -> Iterable[tuple[Domain, int]]:
        return zip(self._domains, self._have, strict=True)

    def _filter(self, what: str, at: int, rows: Iterable[int]) -> int:
        if (what, at) not in self._known:
            found = 0
            for bits in rows:
                found |= bits
            self._known[what, at] = found
        return self._known[what, at]

    # --- many domains ---------------------------------------------------------------------------------------

    def _lay_out(self) -> None:
        self._sets: dict[frozenset[object], int] = {}
        self._all_but: dict[frozenset[object], int] = {}
        self._holding: dict[object, int] = {}  # sets with this member
        self._without: dict[object, int] = {}  # all but this
        self._finite = self._cofinite = 0
        lows: dict[End, int] = {}
        highs: dict[End, int] = {}
        hull_lows: dict[End, int] = {}
        hull_highs: dict[End, int] = {}
        bounded = any(_listed(d) is None and _is_range(d) for d in self._domains)
        for domain, bits in self._pairs():
            members = _listed(domain)
            if members is not None:
                self._sets[members] = self._sets.get(members, 0) | bits
                self._finite |= bits
                for value in members:
                    self._holding[value] = self._holding.get(value, 0) | bits
                numbers = [float(v) for v in members if isinstance(v, int | float) and not isinstance(v, bool)]
                _put(hull_lows, (min(numbers, default=-inf), 0), bits)
                _put(hull_highs, (max(numbers, default=inf), 0), bits)
                if len(members) > _LONGEST or (domain.whole and bounded and len(members) > 1):
                    self.rough |= bits
            elif _is_range(domain):
                _put(lows, _low(domain), bits)
                _put(highs, _high(domain), bits)
                if domain.excluded:
                    self.rough |= bits
            else:
                self._cofinite |= bits
                self._all_but[domain.excluded] = self._all_but.get(domain.excluded, 0) | bits
                for value in domain.excluded:
                    self._without[value] = self._without.get(value, 0) | bits
        self._low, self._high = _Ends(lows), _Ends(highs)
        self._hull_low, self._hull_high = _Ends(hull_lows), _Ends(hull_highs)

    def _at(self, value: object) -> int:
        """The sets and ranges that hold a value, exclusions from ranges aside."""
        found = self._holding.get(value, 0) | (self._cofinite & ~self._without.get(value, 0))
        if isinstance(value, int | float) and not isinstance(value, bool):
            end = (float(value), 0)
            found |= self._low.up_to(end) & self._high.from_on(end)
        return found

    def _meeting(self, domain: Domain) -> int:
        members = _listed(domain)
        found = 0
        if members is not None:
            for value in members:
                found |= self._at(value)
            return found
        if not _is_range(domain):
            return self.all if len(domain.excluded) > _LISTED else self.all & ~self._within_set(domain.excluded)
        low, high = _low(domain), _high(domain)
        found = self._low.up_to(high) & self._high.from_on(low)
        return found | self._cofinite | (self._hull_low.up_to(high) & self._hull_high.from_on(low))

    def _wider(self, domain: Domain, same: int) -> int:
        members = _listed(domain)
        if members is not None:
            found = -1
            for value in members:
                found &= self._at(value)
            return found & self.all
        if _is_range(domain):
            found = self._low.up_to(_low(domain)) & self._high.from_on(_high(domain))
            outside = self._cofinite
            for value in self._without:
                if domain.holds(value):
                    outside &= ~self._without[value]
            return found | outside | same
        return self._subsets(self._all_but, domain.excluded) | same

    def _narrower(self, domain: Domain, same: int) -> int:
        members = _listed(domain)
        if members is not None:
            return self._within_set(members) | same
        if _is_range(domain):
            low, high = _low(domain), _high(domain)
            found = self._low.from_on(low) & self._high.up_to(high)
            return found | (self._hull_low.from_on(low) & self._hull_high.up_to(high)) | same
        found, touched = self.all, 0
        for value in domain.excluded:
            found &= ~self._cofinite | self._without.get(value, 0)
            touched |= self._holding.get(value, 0)
            if isinstance(value, int | float) and not isinstance(value, bool):
                touched |= self._low.up_to((float(value), 0)) & self._high.from_on((float(value), 0))
        return (found & ~touched) | same

    def _within_set(self, members: frozenset[object]) -> int:
        return self._subsets(self._sets, members)

    @staticmethod
    def _subsets(table: dict[frozenset[object], int], members: frozenset[object]) -> int:
        found = 0
        if len(members) <= _LISTED:
            for some in chain.from_iterable(combinations(members, n) for n in range(1, len(members) + 1)):
                found |= table.get(frozenset(some), 0)
            return found
        for one, bits in table.items():
            if one <= members:
                found |= bits
        return found


class _Ends:
    """Matches by the one end of their ranges: those up to a place, and those from it on."""

    def __init__(self, ends: dict[End, int]) -> None:
        self._ends = sorted(ends)
        self._up = [0]
        for end in self._ends:
            self._up.append(self._up[-1] | ends[end])
        self._down = [0]
        for end in reversed(self._ends):
            self._down.append(self._down[-1] | ends[end])
        self._down.reverse()

    def up_to(self, end: End) -> int:
        return self._up[bisect_right(self._ends, end)]

    def from_on(self, end: End) -> int:
        return self._down[bisect_left(self._ends, end)]


def _listed(domain: Domain) -> frozenset[object] | None:
    """The members of a domain that is written as a set or as one value."""
    return domain.members() if domain.allowed is not None or domain.low == domain.high else None


def _is_range(domain: Domain) -> bool:
    return domain.low > -inf or domain.high < inf


def _low(domain: Domain) -> End:
    return float(domain.low), int(domain.low_open and domain.low > -inf)


def _high(domain: Domain) -> End:
    return float(domain.high), -int(domain.high_open and domain.high < inf)


def _put(table: dict[End, int], end: End, bits: int) -> None:
    table[end] = table.get(end, 0) | bits
