"""Selectors compiled: which spans a match reaches, and which selector is narrower than which.

Made by `compile` from the brackets of a rule or limit; run on a span's attributes, compared by `order`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from kvpolicy import words
from kvpolicy.language import syntax
from kvpolicy.policy.domain import Domain, domain
from kvpolicy.policy.settle import Lets, condition_values

Conditions = tuple[tuple[str, str, tuple[object, ...]], ...]


@dataclass(frozen=True, slots=True)
class Matcher:
    """One match of a selector: a kind (or `any`) and conditions that all hold."""

    kind: str
    conditions: Conditions
    left: Mapping[str, Domain] = field(init=False, compare=False, repr=False)  # what `domains` answers
    nothing: bool = field(init=False, compare=False, repr=False)  # its conditions contradict each other

    def __post_init__(self) -> None:
        left = domains(self.conditions)
        object.__setattr__(self, "left", left)
        object.__setattr__(self, "nothing", any(d.empty for d in left.values()))

    def matches(self, kind: str, attributes: Mapping[str, object]) -> bool:
        """Whether a span of that kind and those attributes is reached."""
        if self.kind not in (kind, words.ANY_KIND):
            return False
        return all(holds(attributes.get(a), operator, values) for a, operator, values in self.conditions)

    def domains(self) -> Mapping[str, Domain]:
        """Per attribute that is spoken of, the values left to it."""
        return self.left

    def implies(self, other: Matcher) -> bool:
        """Whether whatever meets its conditions meets those of `other`; kinds aside."""
        if self.nothing:
            return True
        left = self.left
        for attribute, asked in other.left.items():
            mine = left.get(attribute)
            if mine is None or not mine.within(asked):
                return False
        return True


def holds(value: object, operator: str, values: tuple[object, ...]) -> bool:
    """Whether an attribute meets a condition. An absent one (None) meets none, `!=` included."""
    if value is None:
        return False
    if operator == "!=":
        return value not in values
    if operator in ("=", "in"):
        return value in values
    limit = values[0]
    if not _is_number(value) or not _is_number(limit):
        return False
    assert isinstance(value, int | float)
    assert isinstance(limit, int | float)
    if operator == "<":
        return value < limit
    if operator == "<=":
        return value <= limit
    return value > limit if operator == ">" else value >= limit


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@lru_cache(maxsize=4096)
def domains(conditions: Conditions) -> Mapping[str, Domain]:
    """Per attribute, what all conditions on it together leave."""
    found: dict[str, Domain] = {}
    for attribute, operator, values in conditions:
        part = domain(attribute, operator, values)
        found[attribute] = found[attribute].meet(part) if attribute in found else part
    return found


def matcher(match: syntax.Match, lets: Lets, group: str) -> Matcher:
    """A match with its values settled."""
    conditions = tuple((c.attribute, c.operator, condition_values(c, lets, group)) for c in match.conditions)
    return Matcher(match.kind, conditions)


def conditions_imply(narrow: Conditions, wide: Conditions) -> bool:
    """Whether whatever meets all of `narrow` meets all of `wide`."""
    left, right = domains(narrow), domains(wide)
    if any(d.empty for d in left.values()):
        return True
    return all(a in left and left[a].within(d) for a, d in right.items())


def conditions_meet(one: Conditions, other: Conditions) -> bool:
    """Whether something can meet both."""
    left, right = domains(one), domains(other)
    if any(d.empty for d in left.values()) or any(d.empty for d in right.values()):
        return False
    return all(not left[a].meet(right[a]).empty for a in left.keys() & right.keys())


def selector_implies(narrow: tuple[Matcher, ...], wide: tuple[Matcher, ...]) -> bool:
    """Whether every span that `narrow` reaches, `wide` reaches too: each match, kind by kind, lies within one match."""
    for match in narrow:
        if match.nothing:
            continue
        for kind in words.SPAN_KINDS if match.kind == words.ANY_KIND else (match.kind,):
            for w in wide:
                if w.kind in (kind, words.ANY_KIND) and match.implies(w):
                    break
            else:
                return False
    return True


def selectors_meet(one: tuple[Matcher, ...], other: tuple[Matcher, ...]) -> bool:
    """Whether one span can be reached by both."""
    return any(
        (a.kind == b.kind or words.ANY_KIND in (a.kind, b.kind)) and conditions_meet(a.conditions, b.conditions)
        for a in one
        for b in other
    )
