"""A span on which two rules meet and nothing beats either: what a message shows of a disagreement.

Values are tried from every part into which the conditions of all rules concerned cut an attribute, so that there is
one wherever there can be one.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise, product
from math import inf

from kvpolicy import words
from kvpolicy.policy.compiled import Rule
from kvpolicy.policy.domain import Domain
from kvpolicy.policy.matching import Matcher, conditions_meet
from kvpolicy.policy.order import Order, disjoint, guard_implies, interval_implies
from kvpolicy.policy.terms import parts

_POINTS = 4096  # so many spans are tried before a conflict is taken as given


def witness(one: Rule, other: Rule, rivals: Iterable[Rule], order: Order) -> dict[str, object] | None:
    """A span (kind and attributes) that both rules reach and where nothing beats either of them; None where there is
    none, for instance because a third rule was written for just these spans.

    rivals: all rules that set the property. Only those count here that decide whenever both rules do: other guards
    and intervals may be closed.
    """
    if disjoint(one, other):
        return None
    beaters = [
        rule
        for rule in rivals
        if rule is not one
        and rule is not other
        and (order.beats(rule, one) or order.beats(rule, other))
        and _stands_with(rule, one, other)
    ]
    for left in one.matches:
        for right in other.matches:
            for kind in _common(left.kind, right.kind):
                if conditions_meet(left.conditions, right.conditions):
                    found = _free_point(kind, left, right, beaters)
                    if found is not None:
                        return {"kind": kind, **found}
    return None


def _common(one: str, other: str) -> tuple[str, ...]:
    if words.ANY_KIND not in (one, other):
        return (one,) if one == other else ()
    if one == other:
        return ("turn", *(kind for kind in words.SPAN_KINDS if kind != "turn"))
    return (other if one == words.ANY_KIND else one,)


def _stands_with(rule: Rule, one: Rule, other: Rule) -> bool:
    """Whether a rule's guard and interval let it decide whenever those of the two others let them."""
    guard = rule.condition
    guarded = (
        guard_implies(one.condition, guard)
        or guard_implies(other.condition, guard)
        or (guard is not None and parts(guard, "and") <= _said(one) | _said(other))
    )
    return guarded and (
        interval_implies(one.interval, rule.interval) or interval_implies(other.interval, rule.interval)
    )


def _said(rule: Rule) -> frozenset[object]:
    return frozenset() if rule.condition is None else frozenset(parts(rule.condition, "and"))


def _free_point(kind: str, left: Matcher, right: Matcher, beaters: list[Rule]) -> dict[str, object] | None:
    """Values for the attributes that both matches ask for, such that no beater reaches the span. What neither asks
    for is absent, so that no other condition holds."""
    rows = dict(left.domains())
    for attribute, domain in right.domains().items():
        rows[attribute] = rows[attribute].meet(domain) if attribute in rows else domain
    near = [
        match
        for rule in beaters
        for match in rule.matches
        if match.kind in (kind, words.ANY_KIND) and match.domains().keys() <= rows.keys()
    ]
    names = sorted(rows)
    choices = [_points(rows[name], [m.domains()[name] for m in near if name in m.domains()], name) for name in names]
    if not all(choices):
        return None
    number = 1
    for row in choices:
        number *= len(row)
    if number > _POINTS:  # too many to try: taken as a conflict, which is the safe side
        return {name: row[0] for name, row in zip(names, choices, strict=True)}
    for values in product(*choices):
        attributes = dict(zip(names, values, strict=True))
        if not any(match.matches(kind, attributes) for match in near):
            return attributes
    return None


def _points(domain: Domain, others: list[Domain], name: str) -> list[object]:
    """Values of a domain, one at least from every part that the others cut it into."""
    members = domain.members()
    if members is not None:
        return sorted(members, key=repr)
    kind = words.ATTRIBUTES.get(name, "string")
    tried: list[object] = []
    if kind == "string":
        named = {v for d in (domain, *others) for v in (*(d.allowed or ()), *d.excluded)}
        tried = ["other", *named]
        while tried[0] in named:
            tried[0] = f"{tried[0]}_"
    else:
        step = 1 if domain.whole else 0.5
        ends = [e for d in (domain, *others) for e in (d.low, d.high, *_numbers(d.allowed), *_numbers(d.excluded))]
        finite = sorted({e for e in ends if abs(e) != inf} or {1.0})
        middles = [(a + b) / 2 for a, b in pairwise(finite)]
        tried = [_tidy(v) for e in finite for v in (e, e - step, e + step)]
        if not domain.whole:
            tried += middles
    return sorted({v for v in tried if domain.holds(v)}, key=lambda v: (str(type(v)), v))


def _numbers(values: frozenset[object] | None) -> list[float]:
    return [v for v in values or () if isinstance(v, int | float) and not isinstance(v, bool)]


def _tidy(value: float) -> int | float:
    return int(value) if float(value).is_integer() else value
