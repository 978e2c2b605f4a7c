"""A policy and a state of a few lines, so that tests of planning say everything they depend on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kvpolicy.directive import Verdict
from kvpolicy.policy.model import IntervalPattern, Opening, State, Subject
from kvpolicy.request import Owner, Request, Span

Values = Mapping[str, Any]


@dataclass
class Now:
    """A state that knows the time and, where told, an owner's attributes and idleness."""

    now: float = 0.0
    told: dict[str | None, dict[str, object]] = field(default_factory=dict)
    idle: float | None = None

    def opening(self, interval: IntervalPattern, subject: Subject) -> Opening | None:
        return None

    def read(self, function: str, argument: object, subject: Subject) -> float | None:
        return None

    def attributes(self, owner: Owner, branch: str | None = None) -> Mapping[str, object]:
        return self.told.get(branch or owner.branch, {})

    def idle_since(self, owner: Owner) -> float | None:
        return self.idle


class Says:
    """A policy that answers by kind, or by a function of the subject; it keeps what it was asked."""

    def __init__(
        self, answers: Mapping[str, Values] | Callable[[Subject], Values], steps: tuple[float, ...] = ()
    ) -> None:
        self.answers, self.times = answers, steps
        self.asked: list[Subject] = []

    def resolve(self, subject: Subject, state: State) -> Mapping[str, Verdict]:
        self.asked.append(subject)
        values = self.answers(subject) if callable(self.answers) else self.answers.get(subject.kind, {})
        return {
            name: value if isinstance(value, Verdict) else Verdict(name, value, f"{subject.kind}_rule")
            for name, value in values.items()
        }

    def steps(self, subject: Subject, state: State) -> tuple[float, ...]:
        return self.times


def request(*spans: Span, tokens: int = 80, block_size: int = 16, **more: Any) -> Request:
    """A request of owner t/s."""
    return Request("r1", more.pop("owner", Owner("t", "s")), tokens, block_size, spans, **more)
