"""Which of many guards hold whenever another does, found for all at once: what `order.guard_implies` says of each pair.

Guards are `and` and `or` over conditions that nothing is known of. Every part of every guard is a term; terms are taken
from the smallest up, and each is given the set of all terms that follow from it, as bits:

- from an `or` follows what follows from each of its parts;
- from an `and`, what follows from one of its parts, and what that makes true together;
- an `or` follows where one of its parts does, an `and` where all of them do.

An `and` is looked at where the rarest of its parts comes to follow, and then where one does that was missing. So the
work grows with the text of the guards and with what follows from what, not with the pairs.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvpolicy.policy.bits import first, members
from kvpolicy.policy.terms import Apply, Term


def following(guards: Sequence[Term]) -> list[list[int]]:
    """By the number of a guard, the numbers of those that hold whenever it does, itself among them. Terms are in normal
    form, and no two are equal."""
    terms = _Terms(guards)
    number = {terms.number[guard]: at for at, guard in enumerate(guards)}
    whole = 0
    for at in number:
        whole |= 1 << at
    return [sorted(number[at] for at in members(terms.from_it[terms.number[g]] & whole)) for g in guards]


class _Terms:
    """from_it: by term, those that follow from it, as bits."""

    def __init__(self, guards: Sequence[Term]) -> None:
        self.number: dict[Term, int] = {}
        self._parts: list[tuple[int, ...]] = []
        self._joins: list[str | None] = []  # how its parts are joined; None: it has none
        for guard in guards:
            self._add(guard)
        self._either = [0] * len(self._parts)  # the `or`s that a term is a part of
        uses = [0] * len(self._parts)
        for at, parts in enumerate(self._parts):
            for part in parts:
                uses[part] += 1
                if self._joins[at] == "or":
                    self._either[part] |= 1 << at
        self._whole = [sum(1 << part for part in parts) for parts in self._parts]
        self._watching: dict[int, list[int]] = {}  # the `and`s that wait for a term
        self._watched = 0
        for at, parts in enumerate(self._parts):
            if self._joins[at] == "and":
                rarest = min(parts, key=uses.__getitem__)
                self._watching.setdefault(rarest, []).append(at)
                self._watched |= 1 << rarest
        self.from_it: list[int] = []
        for at, parts in enumerate(self._parts):  # parts have been numbered before what they are parts of
            self.from_it.append(self._follow(at, parts))

    def _add(self, term: Term) -> int:
        known = self.number.get(term)
        if known is not None:
            return known
        joined = isinstance(term, Apply) and term.operator in ("and", "or")
        parts = tuple([self._add(operand) for operand in term.operands]) if joined and isinstance(term, Apply) else ()
        number = self.number[term] = len(self._parts)
        self._parts.append(parts)
        self._joins.append(term.operator if joined and isinstance(term, Apply) else None)
        return number

    def _follow(self, at: int, parts: tuple[int, ...]) -> int:
        if self._joins[at] == "or":
            found = -1
            for part in parts:
                found &= self.from_it[part]
            return found | 1 << at
        found = 1 << at | self._either[at]
        for part in parts:
            found |= self.from_it[part]
        fresh = found
        waiting: dict[int, list[int]] = {}  # the `and`s whose rarest part is there, by one that is not
        while fresh:
            more = 0
            awaited = sum(1 << part for part in waiting) if waiting else 0
            for part in members(fresh & (self._watched | awaited)):
                for whole in (*self._watching.get(part, ()), *waiting.pop(part, ())):
                    missing = self._whole[whole] & ~found
                    if missing:
                        waiting.setdefault(first(missing), []).append(whole)
                    elif not found >> whole & 1:
                        more |= 1 << whole | self._either[whole]
            fresh = more & ~found
            found |= fresh
        return found
