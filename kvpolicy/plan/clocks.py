"""A span's verdicts become its directive: values with their defaults, and the clocks that start now or earlier.

`make` calls this once per touched span. What starts at the release (a plain `ttl`, a hold outside any interval) is
left as a length, for `claims` to start.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any, NamedTuple

from kvpolicy import words
from kvpolicy.directive import DROP, HOLD, PIN, Directive, Retention, TierRung, Verdict
from kvpolicy.request import Span

UNTIL_EVENT_S = 3600.0  # `hold until E` ends after this, unless `at most` says otherwise
_NORMAL = Retention()
_LIFETIMES = {kind: words.DEFAULT_LIFETIME_BY_KIND.get(kind, words.DEFAULT_LIFETIME) for kind in words.SPAN_KINDS}


def default_lifetime(kind: str) -> str:
    """The value of `for` where no rule sets it."""
    return _LIFETIMES[kind]


def start_clocks(index: int, span: Span, verdicts: Mapping[str, Verdict], now: float) -> Directive:
    """The directive of one span. now: seconds, from which a `ttl … fixed` runs when this is the owner's first claim
    for the span (a claim that exists keeps its own end).
    """
    return Directive(index, span.kind, span.start, span.end, *clock_values(default_lifetime(span.kind), verdicts, now))


class Common(NamedTuple):
    """The fields of a directive after `end`, in their order: what spans with the same verdicts have in common."""

    priority: int
    retention: Retention
    protected_until: float | None
    expires: float | None
    ttl: float | None
    ttl_fixed: bool
    lifetime: str
    hold_after_release: float | None
    tier: tuple[TierRung, ...] | None
    prefetch: bool | float
    admit: bool
    replicas: int | str
    place: str
    share: str
    rules: Mapping[str, str]
    drop_by_kind: bool


def clock_values(lifetime: str, verdicts: Mapping[str, Verdict], now: float) -> Common:
    """A span's verdicts with their defaults and clocks, wherever the span stands. lifetime: where no rule sets it."""
    values: dict[str, Any] = {}
    rules: dict[str, str] = {}
    for name, verdict in verdicts.items():
        values[name] = verdict.value
        rules[name] = verdict.rule
    take = values.get
    priority: int = take("priority", words.DEFAULT_PRIORITY)
    retention: Retention = _NORMAL
    protected_until = hold_after_release = None
    by_kind = True
    if "retention" in values:
        verdict = verdicts["retention"]
        retention = values["retention"]
        if retention.mode == DROP:
            by_kind = verdict.by_kind
        else:
            protected_until, hold_after_release = _hold(retention, verdict)
    ttl, fixed = None, False
    if "ttl" in values and priority > words.DEFAULT_PRIORITY:  # it says how long a span stays ABOVE the default
        ttl, fixed = values["ttl"].seconds, values["ttl"].fixed
    return Common(
        priority,
        retention,
        protected_until,
        now + ttl if fixed and ttl is not None else None,
        ttl,
        fixed,
        take("for") or lifetime,
        hold_after_release,
        take("tier"),
        take("prefetch", False),
        take("admit", True),
        take("replicas", 1),
        take("place", "anywhere"),
        take("share", words.DEFAULT_SHARE),
        rules,
        by_kind,
    )


def is_protected(directive: Directive, now: float) -> bool:
    """Does its hold stand at `now`? One that starts at the release stands until then, too."""
    if directive.hold_after_release is not None:
        return True
    return directive.protected_until is not None and now < directive.protected_until


def next_end(directive: Directive | Common, now: float, idle_since: float | None) -> float:
    """The first time after `now` at which one of the directive's own clocks changes something; inf for none."""
    soonest = inf
    for end in (directive.protected_until, directive.expires):
        if end is not None and now < end < soonest:
            soonest = end
    if directive.tier is not None and idle_since is not None:
        for rung in directive.tier:
            if now < idle_since + rung.after_s < soonest:
                soonest = idle_since + rung.after_s
    return soonest


def _hold(retention: Retention, verdict: Verdict) -> tuple[float | None, float | None]:
    """(protected until, seconds of a hold from the release). The bound of an interval ends what it granted."""
    if retention.mode == PIN:  # as long as the claim
        return (inf if verdict.bound_at is None else verdict.bound_at), None
    if retention.mode != HOLD:
        return None, None
    if retention.until is not None:
        length = UNTIL_EVENT_S if retention.at_most is None else retention.at_most
    else:
        length = retention.seconds or 0.0
    if verdict.opened_at is None:
        return None, (length if length > 0 else None)
    end = verdict.opened_at + length
    return (end if verdict.bound_at is None else min(end, verdict.bound_at)), None
