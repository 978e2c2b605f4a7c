"""Intervals that have closed while what they protected lingers: what counts of them, for 30 s or until it was used."""

from __future__ import annotations

from kvpolicy import words
from kvpolicy.directive import HOLD, PIN, Retention, Ttl, Verdict
from kvpolicy.policy.model import Opening

CLOSED, OPEN, GRACE = 0, 1, 2
GRACED = ("priority", "retention", "ttl")  # what an interval in grace can still protect with


def standing(opening: Opening | None, now: float) -> int:
    """Whether an interval is closed, open, or closed with protections that linger."""
    if opening is None:
        return CLOSED
    if opening.grace_until is None:
        return OPEN
    return GRACE if now < opening.grace_until else CLOSED


def stronger(lingering: Verdict, present: Verdict | None) -> bool:
    """Whether what an interval in grace still grants protects more than what rules now. A demotion does not linger."""
    value, other = lingering.value, None if present is None else present.value
    if isinstance(value, Retention):
        return value.mode in (HOLD, PIN)
    if isinstance(value, Ttl):
        return isinstance(other, Ttl) and value.seconds > other.seconds
    rank = words.DEFAULT_PRIORITY if other is None else other
    return isinstance(value, int) and isinstance(rank, int) and value > rank
