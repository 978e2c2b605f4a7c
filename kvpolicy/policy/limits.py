"""Limits compiled and applied: clamps of a value, and quotas of memory as data for whoever keeps the budget.

A bound in percent, bytes or tokens is a quota; any other is a clamp. Clamps have no order: the least `at most` and
the greatest `at least` count, and where the two cross `at most` has the last word (`check` refuses such a policy).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import cast

from kvpolicy import units, words
from kvpolicy.directive import HOLD, PIN, Retention, Ttl
from kvpolicy.language import syntax
from kvpolicy.language.codes import UNIT_MISMATCH
from kvpolicy.policy.code import code
from kvpolicy.policy.compiled import Clamp, Quota
from kvpolicy.policy.matching import matcher
from kvpolicy.policy.model import State, Subject
from kvpolicy.policy.settle import Lets, fault, settle
from kvpolicy.policy.terms import Constant
from kvpolicy.policy.values import rank, seconds

_QUOTA_UNITS = (units.PERCENT, units.BYTES, units.TOKENS)


def compile_limit(limit: syntax.Limit, lets: Lets, group: str) -> tuple[list[Clamp], list[Quota]]:
    """The clamps and quotas of one `limit` block."""
    matches = tuple(matcher(m, lets, group) for m in limit.selector)
    name = f"{limit.place.file}:{limit.place.line}"
    clamps: list[Clamp] = []
    quotas: list[Quota] = []
    for bound in limit.bounds:
        target = words.TIER_ALIASES.get(bound.property, bound.property)
        unit = unit_of(bound.value, lets, group)
        if target in words.TIERS or (target == "hold" and unit in _QUOTA_UNITS):
            term = settle(bound.value, lets, group)
            if not isinstance(term, Constant) or isinstance(term.value, str):
                raise fault(UNIT_MISMATCH, bound.place, "a quota is a fixed share, such as 40% of gpu")
            tier = "gpu" if target == "hold" else target
            of = words.TIER_ALIASES.get(bound.of, bound.of) if bound.of else tier
            kind = unit or units.TOKENS
            quotas.append(Quota(target, bound.side, float(term.value), kind, of, limit.per, matches, name, bound.place))
        else:
            term = settle(bound.value, lets, group)
            clamps.append(Clamp(target, bound.side, code(term), term, matches, name, bound.place))
    return clamps, quotas


def unit_of(expression: syntax.Expression, lets: Lets, group: str) -> str | None:
    """The unit class of a fixed amount, read off its first literal; None where there is none."""
    match expression:
        case syntax.Literal():
            return None if expression.quantity.unit == units.COUNT else expression.quantity.unit
        case syntax.Name():
            found = lets.find(expression.path, group)
            return None if found is None else unit_of(found[0], lets, found[1])
        case syntax.Unary():
            return unit_of(expression.operand, lets, group)
        case syntax.Binary():
            return unit_of(expression.left, lets, group) or unit_of(expression.right, lets, group)
        case syntax.Call():
            return next((u for u in (unit_of(a, lets, group) for a in expression.arguments) if u), None)
    return None


def bound_property(property: str) -> str:
    """The property that a clamp of this name acts on: `hold` bounds the duration that `retention` gives."""
    return "retention" if property == "hold" else property


def apply_clamps(
    property: str, value: object, clamps: Iterable[Clamp], subject: Subject, state: State
) -> tuple[object, str | None]:
    """A value within all clamps of its property, and the name of the limit that changed it, if one did.

    value: None where no rule has set the property. Only a rank is limited then: it stands at the default, and an `at
    most` below that lowers it.
    """
    most: tuple[float, str] | None = None
    least: tuple[float, str] | None = None
    for clamp in clamps:
        found = clamp.run(subject, state)
        if found is None:
            continue
        bound, name = cast("float", found), clamp.name
        if clamp.side == "most":
            most = (bound, name) if most is None else min(most, (bound, name))
        elif least is None or (-bound, name) < (-least[0], least[1]):
            least = (bound, name)
    limited_by = None
    if least is not None and value is not None:
        raised = _bounded(property, value, least[0], max)
        value, limited_by = raised, least[1] if raised != value else None
    if most is not None and (value is not None or property == "priority"):
        present = words.DEFAULT_PRIORITY if value is None else value
        lowered = _bounded(property, present, most[0], min)
        if lowered != present:
            value, limited_by = lowered, most[1]
    return value, limited_by


def _bounded(property: str, value: object, bound: float, choose: Callable[[float, float], float]) -> object:
    """One value brought to one bound, from above (`min`) or below (`max`)."""
    if isinstance(value, Ttl):
        return replace(value, seconds=choose(value.seconds, seconds(bound)))
    if isinstance(value, Retention):
        return _bounded_hold(value, seconds(bound), choose)
    if property == "priority":
        return int(choose(cast("int", value), rank(bound)))
    if property == "replicas":
        found = choose(math.inf if value == "all" else cast("float", value), max(0.0, bound))
        return "all" if found == math.inf else int(found)
    return value


def _bounded_hold(value: Retention, bound: float, choose: Callable[[float, float], float]) -> Retention:
    """`at most` makes a pin a hold of that length; `at least` lengthens a hold and makes none."""
    if value.mode == PIN and choose is min:
        return Retention(HOLD, bound)
    if value.mode != HOLD:
        return value
    if value.until is not None:
        return replace(value, at_most=choose(bound if value.at_most is None else value.at_most, bound))
    return replace(value, seconds=choose(value.seconds or 0.0, bound))
