"""What sets two rules apart besides their selectors, of many rules all at once: their guards here, their intervals in
`during`. Which exclude each other, which hold whenever another does; guards are looked up by their parts (`following`).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from kvpolicy.policy.analysis.following import following
from kvpolicy.policy.bits import bits_of
from kvpolicy.policy.terms import Term, negation, parts

FEW = 100  # so many different values are compared pair by pair
Value = TypeVar("Value", bound=Hashable)


@dataclass(slots=True)
class Facet:
    """What sets two rules apart besides their selectors, by a number a rule.

    of: the number of each rule's value. apart: per value, the rules that it never stands together with. wider: those
    that stand whenever it does; narrower: the reverse. Between `rough` rules and all others the last two say too
    little.
    """

    of: list[int]
    apart: list[int] = field(default_factory=list)
    wider: list[int] = field(default_factory=list)
    narrower: list[int] = field(default_factory=list)
    rough: int = 0


def guards(terms: Sequence[Term | None]) -> Facet:
    """The facet of `when`."""
    of, values, have = numbered_values(terms)
    stated = [i for i, value in enumerate(values) if value is not None]
    conditions = [value for value in values if value is not None]
    everybody = (1 << len(terms)) - 1
    free = 0 if len(stated) == len(values) else have[values.index(None)]
    found = Facet(of, [0] * len(values), [everybody] * len(values), [everybody] * len(values))
    by_part: dict[Term, int] = {}  # the rules whose guard says this, alone or with more
    for i, value in zip(stated, conditions, strict=True):
        found.wider[i], found.narrower[i] = free, 0
        for part in parts(value, "and"):
            by_part[part] = by_part.get(part, 0) | have[i]
    by_guard = {value: have[i] for i, value in zip(stated, conditions, strict=True)}
    for i, value in zip(stated, conditions, strict=True):
        found.apart[i] = by_guard.get(negation(value), 0)
        for part in parts(value, "and"):
            found.apart[i] |= by_part.get(negation(part), 0)
    for i, row in zip(stated, following(conditions), strict=True):
        for at in row:
            found.wider[i] |= have[stated[at]]
            found.narrower[stated[at]] |= have[i]
    if len(stated) < len(values):
        found.wider[values.index(None)] = free
    return found


def numbered_values(values: Sequence[Value]) -> tuple[list[int], list[Value], list[int]]:
    """Equal values get one number; per number, the value and the rules that have it."""
    numbers: dict[Value, int] = {}
    of = [numbers.setdefault(value, len(numbers)) for value in values]
    rows: list[list[int]] = [[] for _ in numbers]
    for rule, number in enumerate(of):
        rows[number].append(rule)
    return of, list(numbers), [bits_of(row, len(values)) for row in rows]
