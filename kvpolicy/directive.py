"""What a policy decided: values, verdicts, and the directive of a span with its clocks applied.

`policy.resolve` makes verdicts, `plan` makes directives of them, `claims` and the adapters read those.
All times are seconds on the caller's clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kvpolicy.faults import Notice
from kvpolicy.units import format_duration

NORMAL, DROP, HOLD, PIN = "normal", "drop", "hold", "pin"


@dataclass(frozen=True, slots=True)
class Retention:
    """The value of `retention`. `seconds` for `hold DURATION`; `until` (an event's name) for `hold until EVENT`."""

    mode: str = NORMAL
    seconds: float | None = None
    until: str | None = None
    at_most: float | None = None  # bound of `hold until`, seconds

    def __str__(self) -> str:
        if self.mode != HOLD:
            return self.mode
        if self.until is not None:
            return f"hold until {self.until}"
        return f"hold {format_duration(self.seconds or 0.0)}"


@dataclass(frozen=True, slots=True)
class Ttl:
    """The value of `ttl`, seconds."""

    seconds: float
    fixed: bool = False

    def __str__(self) -> str:
        return format_duration(self.seconds) + (" fixed" if self.fixed else "")


@dataclass(frozen=True, slots=True)
class TierRung:
    """Highest tier allowed from `after_s` seconds of idleness on."""

    tier: str
    after_s: float = 0.0


class Verdict(NamedTuple):
    """One property's value for one span, with its reason.

    value: int (priority, replicas), Retention, Ttl, tuple[TierRung, …], bool (admit, prefetch), float (prefetch
    ahead, seconds), str. rule: the winning rule's name. opened_at: when the innermost interval of that rule opened
    (None: the rule has no interval). bound_at: when protections granted inside that interval end at the latest.
    """

    property: str
    value: object
    rule: str
    opened_at: float | None = None
    bound_at: float | None = None
    limited_by: str | None = None
    by_kind: bool = True  # False: the winning selector reached the span through `any`
    notice: str | None = None  # a computed value that had to be brought into its range: what happened to it


@dataclass(frozen=True, slots=True)
class Directive:
    """A span's verdicts with clocks applied: what one owner wants for the prefix up to the span's end.

    protected_until: a time, math.inf for ever, or None. expires: a time, math.inf, or None (also None before the
    release where `ttl` is set and not fixed). hold_after_release: seconds of a hold that starts at the release
    rather than at an event. ttl: seconds, with `ttl_fixed`. tier: the ladder, None for the engine's own.
    """

    span: int
    kind: str
    start: int
    end: int | None
    priority: int
    retention: Retention
    protected_until: float | None
    expires: float | None
    ttl: float | None
    ttl_fixed: bool
    lifetime: str  # the value of `for`
    hold_after_release: float | None = None
    tier: tuple[TierRung, ...] | None = None
    prefetch: bool | float = False
    admit: bool = True
    replicas: int | str = 1
    place: str = "anywhere"
    share: str = "tenant"
    rules: Mapping[str, str] = field(default_factory=dict)
    drop_by_kind: bool = True  # a drop reached through `any` does not touch claims for agent, workflow or tenant


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything decided for one request at one moment. A span that no rule touches has no directive.

    valid_until: when it has to be read again, at the latest (None: events alone can change it).
    """

    request: str
    at: float
    directives: Sequence[Directive]
    share: str
    valid_until: float | None
    notices: Sequence[Notice] = ()

    def _repr_html_(self) -> str:
        """For notebooks."""
        from kvpolicy.notebook import plan

        return plan(self)
