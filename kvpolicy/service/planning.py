"""One plan of one exchange: by its policy, within its tenant's caps, within the time that a plan may take.

Called by `decisions` for a request and by `holding` when it is read again, so that what a client may not have it does
not get later either. Caps bound what a client brought about by its own words (`Seen.stated`): the operator's policy on
a request that says nothing of itself is not bound by them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kvpolicy.adapter import Adapter, Lowered
from kvpolicy.directive import DROP, HOLD, NORMAL, PIN, Directive, Plan, Retention
from kvpolicy.faults import Notice
from kvpolicy.plan import plan
from kvpolicy.request import Request
from kvpolicy.service.config import Caps
from kvpolicy.service.seen import Seen
from kvpolicy.steering.pace import PLAN_WITHIN_S, Pace
from kvpolicy.units import parse_duration
from kvpolicy.words import SHARES
from kvpolicy.workflow.state import RunState

UNBOUNDED_HOLD_S = 3600.0  # of a `hold until` that says no `at most`


class Planning:
    """state: of all runs. adapter: of the engines. within: seconds of processor time for one plan."""

    def __init__(self, state: RunState, adapter: Adapter, within: float = PLAN_WITHIN_S) -> None:
        self.state, self.adapter = state, adapter
        self._pace = Pace(within)

    def pace(self) -> Callable[[], None] | None:
        """For one plan that begins now, as `plan` takes it."""
        return self._pace.start()

    def make(self, seen: Seen, request: Request, now: float) -> Plan:
        """The plan. Raises TimeSpent where it takes too long."""
        made = plan(seen.chosen.version.policy, request, self.state, now, pace=self.pace())
        if seen.ends:  # a plan that comes late makes no claims that have ended meanwhile
            rows = tuple(d for d in made.directives if d.retention.mode == DROP or d.lifetime not in seen.ends)
            made = replace(made, directives=rows)
        return bounded(made, seen.caps, now) if seen.stated and seen.caps is not None else made

    def lower(self, made: Plan, request: Request) -> Lowered:
        """As the engine takes it."""
        return self.adapter.lower(made, request)


def bounded(made: Plan, caps: Caps, now: float) -> Plan:
    """A plan within a tenant's caps, with a notice CLIPPED where something did not fit.

    # INVARIANT: no priority, time to live, hold or share of the result is above the caps.
    """
    ttl, hold = _seconds(caps.max_ttl), _seconds(caps.max_hold)
    rows = [_bounded(each, caps, ttl, hold, now) for each in made.directives]
    share = narrowed(made.share, caps)
    cut = sum(one is not other for one, other in zip(rows, made.directives, strict=True)) + (share != made.share)
    if not cut:
        return made
    notice = Notice("CLIPPED", f"{cut} of its wishes are above the tenant's caps", {"by": "caps", "directives": cut})
    return replace(made, directives=tuple(rows), share=share, notices=(*made.notices, notice))


def narrowed(share: str, caps: Caps) -> str:
    """The widest share that is allowed and no wider than asked for."""
    at = SHARES.index(share)
    allowed = [name for name in SHARES[: at + 1] if name in caps.share]
    return allowed[-1] if allowed else SHARES[0]


def _bounded(each: Directive, caps: Caps, ttl: float, hold: float, now: float) -> Directive:
    changes: dict[str, object] = {}
    if each.priority > caps.max_priority:
        changes["priority"] = caps.max_priority
    if each.ttl is not None and each.ttl > ttl:
        changes["ttl"] = ttl
        if each.ttl_fixed and each.expires is not None:
            changes["expires"] = each.expires - (each.ttl - ttl)
    if each.share not in caps.share:
        changes["share"] = narrowed(each.share, caps)
    changes |= _hold_within(each, hold, now)
    return replace(each, **changes) if changes else each  # type: ignore[arg-type]


def _hold_within(each: Directive, most: float, now: float) -> dict[str, object]:
    """A protection that is longer than `most` ends as if it had been asked for that long: planning it again later does
    not make it longer. A pin has no such beginning, so it becomes a rank."""
    told = each.retention
    if told.mode == PIN:
        return {"retention": Retention(NORMAL), "protected_until": None, "hold_after_release": None}
    if told.mode != HOLD:
        return {}
    length = told.seconds if told.until is None else (told.at_most or UNBOUNDED_HOLD_S)
    if length is None or length <= most:
        return {}
    if told.until is None:
        changes: dict[str, object] = {"retention": Retention(HOLD, seconds=most)}
    else:
        changes = {"retention": replace(told, at_most=most)}
    if each.hold_after_release is not None:
        changes["hold_after_release"] = min(each.hold_after_release, most)
    if each.protected_until is not None:
        ends = min(each.protected_until - (length - most), now + most)
        changes["protected_until"] = ends if ends > now else None
    return changes


def _seconds(text: str) -> float:
    value = parse_duration(text)
    return float(value)
