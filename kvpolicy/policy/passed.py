"""What of a decision is over, or only lingers: sentences for `explain` and for tests that fail.

Rules decide by events and conditions, never by how long a hold has lasted; a claim's clocks do that later. Whoever
looks at a decision some time after its event wants to know both.
"""

from __future__ import annotations

from collections.abc import Iterable

from kvpolicy.directive import HOLD, Retention, Verdict
from kvpolicy.policy.compiled import Rule
from kvpolicy.policy.grace import GRACE, standing
from kvpolicy.policy.model import GRACE_S, State, Subject
from kvpolicy.policy.timeline import Happening, unmoved
from kvpolicy.units import format_duration


def remarks(verdict: Verdict | None, rule: Rule | None, subject: Subject, state: State) -> list[str]:
    """Sentences on a verdict and its rule: an interval that is closed already, a hold that is over by `state.now`."""
    if verdict is None or rule is None or rule.interval is None:
        return []
    told = []
    opening = state.opening(rule.interval, subject)
    if opening is not None and opening.grace_until is not None and standing(opening, state.now) == GRACE:
        closed, left = opening.grace_until - GRACE_S, opening.grace_until - state.now
        by = "" if rule.interval.until is None else f" by {rule.interval.until.name}"
        told.append(
            f"Its interval was closed{by} {_ago(state.now - closed)}; its protections stay for {_time(left)} more, or "
            "until the next request has used the blocks."
        )
    end = _end(verdict)
    if end is not None and end <= state.now:
        told.append(
            f"The hold ended {_ago(state.now - end)}: the blocks are no longer protected, and priority rules again. "
            "Rules decide how long a hold is, and the claim keeps its clock."
        )
    return told


def unheeded(events: Iterable[Happening], subject: Subject) -> list[str]:
    """One sentence for each event that does not move the phase of the span's owner, with the reason."""
    return [
        f"{event.name} has no effect on the phase here: {why}." for event, why in unmoved(events, subject.attributes)
    ]


def _end(verdict: Verdict) -> float | None:
    """When the hold of a verdict ends; None where it is no hold, or one that starts at the release."""
    value = verdict.value
    if not isinstance(value, Retention) or value.mode != HOLD or verdict.opened_at is None:
        return None
    length = value.seconds if value.until is None else value.at_most
    ends = [verdict.bound_at] if length is None else [verdict.opened_at + length, verdict.bound_at]
    return min((end for end in ends if end is not None), default=None)


def _ago(seconds: float) -> str:
    return "just now" if seconds <= 0 else f"{_time(seconds)} ago"


def _time(seconds: float) -> str:
    return format_duration(round(seconds, 3))
