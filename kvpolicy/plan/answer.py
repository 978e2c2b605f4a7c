"""What the policy says of one span, and of every span that it cannot tell from it.

Made by `make` for each group of an outline; directives and claims read its values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf

from kvpolicy import words
from kvpolicy.directive import Verdict
from kvpolicy.plan.clocks import Common, clock_values, next_end
from kvpolicy.policy.table import Decision


@dataclass(slots=True)
class Answer:
    """values: None where no rule touches the span. lapse: the first time at which they may change, inf for none.
    lasting: they hold at every time, not just from the one they were read at. strained: verdicts that were brought
    into their range."""

    verdicts: Mapping[str, Verdict]
    values: Common | None
    share: str
    lapse: float
    lasting: bool = False
    strained: tuple[Verdict, ...] = ()


def answer(
    lifetime: str,
    verdicts: Mapping[str, Verdict],
    step: float,
    now: float,
    idle_since: Callable[[], float | None],
    before: Answer | None = None,
) -> Answer:
    """Start the clocks of a span's verdicts. lifetime: its `for` where no rule sets it. step: when the verdicts
    themselves may change. idle_since: since when their owner is idle, asked where a ladder depends on it. before: the
    answer that the span had in its latest plan. Where nothing differs, the values are those made before, the very
    object."""
    made: dict[str, Answer] | None = verdicts.made if isinstance(verdicts, Decision) else None
    kept = None if made is None else made.get(lifetime)
    if kept is not None and step == inf and kept.lasting:
        return kept
    if not verdicts:
        values, share, lapse = None, words.DEFAULT_SHARE, step
    else:
        if kept is None and before is not None and before.values is not None and before.verdicts == verdicts:
            kept = before
        values = None if kept is None else kept.values
        if values is None or values.ttl_fixed:
            values = clock_values(lifetime, verdicts, now)
        share, lapse = values.share, min(step, next_end(values, now, idle_since() if values.tier else None))
    # An end that is past is none from now on, but it is one for whoever reads at an earlier time (another replay).
    lasting = lapse == inf and (values is None or not (_dated(values.protected_until) or _dated(values.expires)))
    strained = tuple([v for v in verdicts.values() if v.limited_by is not None or v.notice is not None])
    found = Answer(verdicts, values, share, lapse, lasting, strained)
    if made is not None and not (values is not None and (values.ttl_fixed or values.tier is not None)):
        made[lifetime] = found
    return found


def _dated(end: float | None) -> bool:
    return end is not None and end != inf
