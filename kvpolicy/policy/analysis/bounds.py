"""KVP205, KVP208 and KVP209: holds beyond their interval's bound, limits that cross, protection beyond a quota."""

from __future__ import annotations

from bisect import bisect_left

from kvpolicy import units
from kvpolicy.directive import HOLD, PIN, Retention
from kvpolicy.faults import Diagnostic, Note
from kvpolicy.language import codes
from kvpolicy.policy.analysis.crossing import Crossing
from kvpolicy.policy.analysis.view import View, called, fixed_value
from kvpolicy.policy.bits import members
from kvpolicy.policy.compiled import Clamp, Rule
from kvpolicy.policy.matching import selector_implies, selectors_meet
from kvpolicy.policy.over import numbered
from kvpolicy.policy.terms import Constant
from kvpolicy.units import format_duration, format_quantity

_MOST = 100  # so many crossed limits are told


def holds_beyond_bounds(view: View) -> list[Diagnostic]:
    """`on A until B at most 5min { turn { retention: hold 10min } }`: the bound ends the hold."""
    found: list[Diagnostic] = []
    for rule in view.by_property.get("retention", ()):
        value = fixed_value(rule, "retention")
        if rule.interval is None or not isinstance(value, Retention) or value.mode != HOLD:
            continue
        wanted = value.seconds if value.seconds is not None else value.at_most
        bound = rule.interval.at_most
        written = view.written[id(rule)].interval
        if wanted is None or wanted <= bound:
            continue
        stated = written is not None and written.at_most is not None
        whose = "the bound of its interval" if stated else "the bound that every interval has"
        message = (
            f"{called(rule)} holds for {format_duration(wanted)}, but {whose} ends it after {format_duration(bound)}"
        )
        fix = f"hold for less, or write `at most {format_duration(wanted)}` after the interval"
        found.append(codes.HOLD_BEYOND_BOUND.at(rule.values["retention"].place, message, fix=fix))
    return found


def limits_crossed(view: View) -> list[Diagnostic]:
    """An `at least` above an `at most`, on spans that both reach; of more than a hundred such pairs a hundred."""
    found: list[Diagnostic] = []
    for name in sorted({clamp.property for clamp in view.policy.clamps}):
        rows = [clamp for clamp in view.policy.clamps if clamp.property == name and _amount(clamp) is not None]
        if {clamp.side for clamp in rows} != {"least", "most"}:
            continue
        clamps = numbered(rows, [len(clamp.matches) for clamp in rows])
        crossing, amounts = Crossing(clamps), [_amount(clamp) or 0.0 for clamp in clamps]
        highs = sorted((at for at, clamp in enumerate(clamps) if clamp.side == "most"), key=lambda at: amounts[at])
        steps, below = [amounts[at] for at in highs], [0]  # the limits at most so much, by amount
        for at in highs:
            below.append(below[-1] | 1 << at)
        for low, clamp in enumerate(clamps):
            under = below[bisect_left(steps, amounts[low])] if clamp.side == "least" else 0
            for high in members(crossing.meeting(low) & under) if under else ():
                if len(found) < _MOST and selectors_meet(clamp.matches, clamps[high].matches):
                    found.append(_crossed(clamp, clamps[high]))
            if len(found) >= _MOST:
                return found
    return found


def _crossed(low: Clamp, high: Clamp) -> Diagnostic:
    late, early = (low, high) if low.place > high.place else (high, low)
    message = f"{low.property} is to be at least {_shown(low)} and at most {_shown(high)} on the same spans"
    note = Note(early.place, f"at {early.side} {_shown(early)} is here")
    return codes.LIMITS_CROSSED.at(late.place, message, notes=(note,), fix="change one of the two")


def _amount(clamp: Clamp) -> float | None:
    term = clamp.term
    fits = isinstance(term, Constant) and isinstance(term.value, int | float)
    return float(term.value) if fits and isinstance(term, Constant) else None


def _shown(clamp: Clamp) -> str:
    amount = _amount(clamp) or 0.0
    return format_duration(amount) if clamp.property in {"ttl", "hold"} else f"{amount:g}"


def more_than_fits(view: View) -> list[Diagnostic]:
    """A protected span that is larger, by its own selector, than what may be protected of it."""
    found: list[Diagnostic] = []
    quotas = [q for q in view.policy.quotas if q.property == HOLD and q.unit == units.TOKENS and q.side == "most"]
    for rule in view.by_property.get("retention", ()) if quotas else ():
        value = fixed_value(rule, "retention")
        if not isinstance(value, Retention) or value.mode not in {HOLD, PIN}:
            continue
        smallest = _smallest(rule)
        for quota in quotas:
            if smallest > quota.amount and selector_implies(rule.matches, quota.matches):
                least, most = format_quantity(smallest, units.TOKENS), format_quantity(quota.amount, units.TOKENS)
                message = (
                    f"{called(rule)} protects spans of {least} tokens and more, where {most} at most may be protected"
                )
                note = Note(quota.place, "the limit is here")
                fix = "protect less, or raise the limit; what does not fit loses its protection, tail first"
                found.append(codes.MORE_THAN_FITS.at(rule.values["retention"].place, message, notes=(note,), fix=fix))
                break
    return found


def _smallest(rule: Rule) -> float:
    """The least number of tokens of a span that the rule reaches."""
    least = [match.domains()["tokens"].low if "tokens" in match.domains() else 0.0 for match in rule.matches]
    sizes = [min(listed) if (listed := _tokens(rule, i)) else low for i, low in enumerate(least)]
    return min(sizes, default=0.0)


def _tokens(rule: Rule, index: int) -> list[float]:
    domain = rule.matches[index].domains().get("tokens")
    members = domain.members() if domain is not None else None
    return [float(v) for v in members or () if isinstance(v, int | float)]
