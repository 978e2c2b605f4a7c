"""Selectors of many rules or limits, compared all at once: which can meet, and which lie within which.

Made from what has `matches`; `index` adds guards and intervals. A match is a bit, laid out so that the first match of
every owner comes first, then the second of those that have two: an owner's bit is then found by shifting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from kvpolicy import words
from kvpolicy.policy.analysis.facets import FEW
from kvpolicy.policy.analysis.ranges import Values
from kvpolicy.policy.bits import bits_of
from kvpolicy.policy.domain import Domain
from kvpolicy.policy.matching import Matcher

_KINDS = tuple(words.SPAN_KINDS)


class Selecting(Protocol):
    """A rule, a limit or a quota."""

    @property
    def matches(self) -> tuple[Matcher, ...]:
        """Its selector."""
        ...


class Crossing:
    """Selectors by number, in the order given: owners with more matches must come first.

    `rough`: those between which `wider` and `narrower` say too little.
    """

    def __init__(self, owners: Sequence[Selecting], few: int = FEW, kinds: Sequence[str] = _KINDS) -> None:
        self._kinds = kinds
        counts = [len(owner.matches) for owner in owners]
        assert counts == sorted(counts, reverse=True)
        self.size = len(owners)
        self._slots: list[tuple[int, int]] = []  # where each begins, and the owners that have it
        self._matches: list[Matcher] = []
        self._of: list[list[int]] = [[] for _ in owners]
        for slot in range(counts[0] if counts else 0):
            some = [i for i, count in enumerate(counts) if count > slot]
            self._slots.append((len(self._matches), (1 << len(some)) - 1))
            for i in some:
                self._of[i].append(len(self._matches))
                self._matches.append(owners[i].matches[slot])
        self._everything = (1 << len(self._matches)) - 1
        self._lay_out(few)

    def _lay_out(self, few: int) -> None:
        total = len(self._matches)
        kinds: dict[str, list[int]] = {}
        rows: dict[str, dict[Domain, list[int]]] = {}
        nothing: list[int] = []
        for at, match in enumerate(self._matches):
            kinds.setdefault(match.kind, []).append(at)
            if match.nothing:
                nothing.append(at)
                continue
            for name, domain in match.domains().items():
                rows.setdefault(name, {}).setdefault(domain, []).append(at)
        self._nothing = bits_of(nothing, total)
        exact = {kind: bits_of(some, total) for kind, some in kinds.items()}
        self._any = exact.get(words.ANY_KIND, 0)
        self._kind = {kind: exact.get(kind, 0) | self._any for kind in self._kinds}
        self._only = {kind: exact.get(kind, 0) for kind in self._kinds}
        self._values: dict[str, Values] = {}
        self._number: dict[str, dict[Domain, int]] = {}
        self._silent: dict[str, int] = {}  # matches that do not ask for the attribute
        rough = 0
        for name, of in rows.items():
            have = [bits_of(some, total) for some in of.values()]
            self._values[name] = Values(list(of), have, few)
            self._number[name] = {domain: i for i, domain in enumerate(of)}
            self._silent[name] = self._everything & ~self._values[name].all
            rough |= self._values[name].rough
        self._unasked: dict[frozenset[str], int] = {}
        self.rough = self._fold(rough)

    def meeting(self, owner: int, covers: Sequence[Matcher] = ()) -> int:
        """The owners that some span may be reached by together with this one.

        covers: matches whose spans do not count, as far as leaving out listed values of one attribute says so.
        """
        found = 0
        for at in self._of[owner]:
            match = self._matches[at]
            left = _outside(match, covers) if covers else match.domains()
            if match.nothing or left is None:
                continue
            bits = (self._everything if match.kind == words.ANY_KIND else self._kind[match.kind]) & ~self._nothing
            for name, domain in left.items():
                number = self._number[name].get(domain)
                values = self._values[name]
                bits &= self._silent[name] | (
                    values.meeting(number) if number is not None else values.meeting_of(domain)
                )
            found |= bits
        return self._fold(found)

    def wider(self, owner: int) -> int:
        """The owners that reach every span that this one reaches."""
        found = (1 << self.size) - 1
        for at in self._of[owner]:
            match = self._matches[at]
            if match.nothing:
                continue
            left = match.domains()
            bits = self._asking_only(frozenset(left))
            for name, domain in left.items():
                bits &= self._silent[name] | self._values[name].wider(self._number[name][domain])
            for kind in self._kinds if match.kind == words.ANY_KIND else (match.kind,):
                found &= self._fold(bits & self._kind[kind])
        return found

    def narrower(self, owner: int) -> int:
        """The owners whose every span this one reaches."""
        inside = dict.fromkeys(self._kinds, 0)
        for at in self._of[owner]:
            match = self._matches[at]
            bits = self._everything
            for name, domain in () if match.nothing else match.domains().items():
                bits &= self._values[name].narrower(self._number[name][domain])
            if match.nothing:
                bits = 0
            for kind in self._kinds if match.kind == words.ANY_KIND else (match.kind,):
                inside[kind] |= bits
        whole, fits = self._any, self._nothing
        for kind, bits in inside.items():
            fits |= self._only[kind] & bits
            whole &= bits
        fits |= whole
        found = (1 << self.size) - 1
        for begin, some in self._slots:
            found &= (fits >> begin & some) | ~some
        return found

    def _asking_only(self, names: frozenset[str]) -> int:
        """The matches that ask for no attribute besides these."""
        if names not in self._unasked:
            bits = self._everything & ~self._nothing
            for name, silent in self._silent.items():
                if name not in names:
                    bits &= silent
            self._unasked[names] = bits
        return self._unasked[names]

    def _fold(self, matches: int) -> int:
        """The owners of some matches."""
        found = 0
        for begin, some in self._slots:
            rest = matches >> begin
            if not rest:
                break
            found |= rest & some
        return found


def _outside(match: Matcher, covers: Sequence[Matcher]) -> Mapping[str, Domain] | None:
    """What is left of a match without the spans of some others; None for nothing."""
    left = dict(match.domains())
    for cover in covers:
        if cover.kind not in (match.kind, words.ANY_KIND) or cover.nothing:
            continue
        asked = [name for name, d in cover.domains().items() if name not in left or not left[name].within(d)]
        if not asked:
            return None
        members = left[asked[0]].members() if len(asked) == 1 and asked[0] in left else None
        if members is not None:
            taken = cover.domains()[asked[0]]
            left[asked[0]] = Domain(allowed=frozenset(v for v in members if not taken.holds(v)))
    return left
