"""What the policy says of one span, and of every span that it cannot tell from it.

Made by `make` for each group of an outline; directives and claims read its values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kvpolicy import words
from kvpolicy.directive import Verdict
from kvpolicy.plan.clocks import Common, clock_values, default_lifetime, next_end
from kvpolicy.policy.resolve import Decision


@dataclass(slots=True)
class Answer:
    """values: None where no rule touches the span. lapse: the first time at which they may change, inf for none.
    strained: verdicts that were brought into their range."""

    verdicts: Mapping[str, Verdict]
    values: Common | None
    share: str
    lapse: float
    strained: tuple[Verdict, ...] = ()


def answer(
    kind: str,
    verdicts: Mapping[str, Verdict],
    step: float,
    now: float,
    idle_since: float | None,
    before: Answer | None = None,
) -> Answer:
    """Start the clocks of a span's verdicts. step: when the verdicts themselves may change. before: the answer that
    the span had in its latest plan; where nothing has changed since, its values are that one's own."""
    if not verdicts:
        return Answer(verdicts, None, words.DEFAULT_SHARE, step)
    kept: dict[str, Common] | None = verdicts.made if isinstance(verdicts, Decision) else None
    lifetime = default_lifetime(kind)
    values = None if kept is None else kept.get(lifetime)
    if values is None and before is not None and before.values is not None and before.verdicts == verdicts:
        values = None if before.values.ttl_fixed else before.values
    if values is None:
        values = clock_values(kind, verdicts, now)
    if kept is not None and not values.ttl_fixed:
        kept[lifetime] = values
    strained = tuple([v for v in verdicts.values() if v.limited_by is not None or v.notice is not None])
    return Answer(verdicts, values, values.share, min(step, next_end(values, now, idle_since)), strained)
