"""Guards and intervals of many rules, compared all at once: which exclude each other, which hold whenever another does.

Guards are looked up by their parts (`following`). Intervals, of which rules share few, are compared pair by pair with
`order`'s own function; where there are many, what only a comparison can tell is marked `rough`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from kvpolicy.policy.analysis.following import following
from kvpolicy.policy.bits import bits_of
from kvpolicy.policy.model import IntervalPattern
from kvpolicy.policy.order import interval_implies, phase_of
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
    of, values, have = _number(terms)
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


def intervals(patterns: Sequence[IntervalPattern | None], few: int = FEW) -> Facet:
    """The facet of `on … until …`."""
    of, values, have = _number(patterns)
    if len(values) <= few:
        return _pairwise(of, values, have, _never_together, interval_implies)
    found = Facet(of)
    phases: dict[str, int] = {}
    everybody = free = 0
    plain: dict[tuple[str, str | None], int] = {}  # without conditions: compared by their names
    for value, bits in zip(values, have, strict=True):
        everybody |= bits
        if value is None:
            free = bits
            continue
        phase = phase_of(value)
        if phase is not None:
            phases[phase] = phases.get(phase, 0) | bits
        if value.start.conditions or (value.until is not None and value.until.conditions):
            found.rough |= bits
        else:
            key = (value.start.name, None if value.until is None else value.until.name)
            plain[key] = plain.get(key, 0) | bits
    phased = 0
    for bits in phases.values():
        phased |= bits
    for i, value in enumerate(values):
        if value is None:
            found.apart.append(0)
            found.wider.append(free)
            found.narrower.append(everybody)
            continue
        phase = phase_of(value)
        found.apart.append(0 if phase is None else phased & ~phases[phase])
        start, until = value.start.name, None if value.until is None else value.until.name
        same = plain.get((start, until), 0) if not found.rough & have[i] else have[i]
        found.wider.append(free | same | plain.get((start, None), 0))
        inside = 0
        if until is None:
            for (name, _), bits in plain.items():
                inside |= bits if name == start else 0
        found.narrower.append(same | inside)
    return found


def _never_together(one: IntervalPattern | None, other: IntervalPattern | None) -> bool:
    first, second = phase_of(one), phase_of(other)
    return first is not None and second is not None and first != second


def _number(values: Sequence[Value]) -> tuple[list[int], list[Value], list[int]]:
    """Equal values get one number; per number, the value and the rules that have it."""
    numbers: dict[Value, int] = {}
    of = [numbers.setdefault(value, len(numbers)) for value in values]
    rows: list[list[int]] = [[] for _ in numbers]
    for rule, number in enumerate(of):
        rows[number].append(rule)
    return of, list(numbers), [bits_of(row, len(values)) for row in rows]


def _pairwise(
    of: list[int],
    values: list[Value],
    have: list[int],
    apart: Callable[[Value, Value], bool],
    implies: Callable[[Value, Value], bool],
) -> Facet:
    found = Facet(of, [0] * len(values), [0] * len(values), [0] * len(values))
    for i, one in enumerate(values):
        for j, other in enumerate(values):
            if apart(one, other):
                found.apart[i] |= have[j]
            if implies(one, other):
                found.wider[i] |= have[j]
                found.narrower[j] |= have[i]
    return found
