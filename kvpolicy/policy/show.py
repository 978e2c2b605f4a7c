"""Verdict values as an author would write them, and as JSON carries them.

Read by `explain`, tests and the command line. Durations are strings in the language's notation.
"""

from __future__ import annotations

from kvpolicy.directive import Retention, TierRung
from kvpolicy.policy.values import HOLD_UNTIL_BOUND_S
from kvpolicy.units import format_duration


def value_text(value: object) -> str:
    """A value in the language's notation: `80`, `hold 800ms`, `gpu, cpu after 30s`, `yes`."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return format_duration(value)
    if isinstance(value, Retention) and value.until is not None and value.at_most not in (None, HOLD_UNTIL_BOUND_S):
        return f"{value} at most {format_duration(value.at_most or 0.0)}"
    if isinstance(value, tuple):
        return ", ".join(_rung(r) for r in value if isinstance(r, TierRung))
    return str(value)


def value_json(value: object) -> object:
    """A value for a JSON document: numbers and truth values as they are, anything else as written."""
    return value if isinstance(value, bool | int) else value_text(value)


def _rung(rung: TierRung) -> str:
    return rung.tier if rung.after_s == 0 else f"{rung.tier} after {format_duration(rung.after_s)}"
