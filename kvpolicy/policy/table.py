"""What decides spans while certain intervals are open, made once, and the verdicts that came of it last.

A `resolve.Menu` makes tables and fills them; `plan` keeps in a decision what it has made of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kvpolicy.directive import Verdict
from kvpolicy.policy.compiled import Guard
from kvpolicy.policy.contest import Contest
from kvpolicy.policy.model import Opening

Openings = tuple[Opening | None, ...]


class Decision(dict[str, Verdict]):
    """The verdicts on one span, by property; shared, so nobody changes it. made: what planning has made of them, by
    the lifetime of a span that states none."""

    __slots__ = ("made",)

    def __init__(self, verdicts: Mapping[str, Verdict]) -> None:
        super().__init__(verdicts)
        self.made: dict[str, Any] = {}


class Outcome(NamedTuple):
    """A verdict but for its interval's times. at: where the winning rule's interval stands among the menu's."""

    property: str
    value: object
    rule: str
    at: int | None
    limited_by: str | None
    by_kind: bool
    notice: str | None


@dataclass(slots=True)
class Table:
    """What decides each property while certain intervals are open.

    settled: the verdicts, where they never change. guards: those that have a say, where the verdicts follow from them
    and the openings alone (few of them), else None. outcomes: by what the guards answer. openings, decided: the
    openings that were met last, and the verdicts then: the spans of one owner come one after the other.
    """

    contests: Mapping[str, Contest]
    settled: Decision | None = None
    guards: tuple[Guard, ...] | None = None
    outcomes: dict[tuple[bool, ...], tuple[Outcome, ...] | None] = field(default_factory=dict)
    openings: Openings = ()
    decided: dict[tuple[bool, ...], Decision] = field(default_factory=dict)
