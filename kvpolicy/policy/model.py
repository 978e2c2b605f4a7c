"""What a compiled policy asks of the world, as protocols: a span's facts and the state that rules read.

`policy` imports nothing of `workflow`: `workflow.state.RunState` fulfils `State`, and so does the table of
assumptions that tests and `explain` use.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from kvpolicy.request import Owner


class _Never(float):
    """`never`: the distance to a step that cannot come. Greater than every number, and no missing value."""

    def __repr__(self) -> str:
        return "never"


NEVER = _Never("inf")

RESUMES = ("tool_result", "turn_start")  # an interval that one of these closes keeps its protections …
GRACE_S = 30.0  # … so long, or until the resuming request has touched its blocks
ANSWER_GRACE_S = 2.0  # how long an answer that ended may stay unclassified, its blocks kept as they were


@dataclass(frozen=True, slots=True)
class Subject:
    """One span as rules see it. `attributes` holds every static and state attribute that is present, nothing else;
    `tokens` is among them where the length is known."""

    kind: str
    attributes: Mapping[str, object]
    owner: Owner
    span: int = 0  # its index in the request


@dataclass(frozen=True, slots=True)
class EventPattern:
    """`tool_call[tool = grep]` compiled: an event name, and conditions as (attribute, operator, values)."""

    name: str
    conditions: tuple[tuple[str, str, tuple[object, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class IntervalPattern:
    """`on A until B at most D` compiled. `until` None: while A's phase lasts, or until the owner is forgotten.

    at_most: seconds, default 3600: a bound ends the protections granted inside, never the interval.
    """

    start: EventPattern
    until: EventPattern | None
    at_most: float = 3600.0


class Opening(NamedTuple):
    """An open interval: when it opened, and until when its protections may last.

    `grace_until`: set while the interval is closed already and only its protections linger (30 s, or until the
    resuming request has touched the blocks).
    """

    at: float
    bound_at: float
    grace_until: float | None = None


class State(Protocol):
    """One snapshot. Same snapshot, same answers; no clock is read."""

    @property
    def now(self) -> float:
        """Seconds on the caller's clock."""
        ...

    def opening(self, interval: IntervalPattern, subject: Subject) -> Opening | None:
        """The innermost opening of `interval` for the subject's owner, or None while it is closed."""
        ...

    def read(self, function: str, argument: object, subject: Subject) -> float | None:
        """A function of `words.FUNCTIONS`: its value in base units (seconds, bytes, fraction, count), NEVER, or
        None where there is no data yet. `argument`: None, a series name, a duration in seconds (`within`), an
        EventPattern, a kind or a tier."""
        ...
