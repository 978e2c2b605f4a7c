"""Who decides one property among several candidates, with as few questions to the state as the outcome needs.

`resolve` makes a contest once for a set of open intervals and asks it for every span.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import cast

from kvpolicy.policy.compiled import Guard, Rule
from kvpolicy.policy.model import State, Subject
from kvpolicy.policy.order import Order


@dataclass(frozen=True, slots=True)
class Contest:
    """The candidates for one property, each after all that beat it, without those that cannot come to decide.

    sure: the winners where no guard has a say, else ().
    """

    rules: tuple[Rule, ...]
    sure: tuple[Rule, ...]


class Guards:
    """The guards of one span in one state, each asked at most once and only when it matters. subject: the span, or who
    tells it, where it takes time to put together and few rules ask."""

    __slots__ = ("_answers", "_subject", "_tell", "state")

    def __init__(self, subject: Subject | Callable[[], Subject], state: State) -> None:
        self.state = state
        self._tell: Callable[[], Subject] | None = subject if callable(subject) else None
        self._subject: Subject | None = None if callable(subject) else subject
        self._answers: dict[int, bool] = {}

    @property
    def subject(self) -> Subject:
        """The span that they are asked of."""
        if self._tell is not None:
            self._subject, self._tell = self._tell(), None
        return cast("Subject", self._subject)

    def hold(self, guard: Guard | None) -> bool:
        """Whether a guard holds; one without data does not."""
        if guard is None:
            return True
        key = id(guard)
        answer = self._answers.get(key)
        if answer is None:
            answer = self._answers[key] = guard.run(self.subject, self.state) is True
        return answer


STATELESS = Guards(cast("Subject", None), cast("State", None))  # for what reads neither


def contest(rules: Iterable[Rule], order: Order) -> Contest:
    """Put candidates in order: winners first, names where nothing else orders them."""
    left = sorted(rules, key=lambda r: (r.name, r.place))
    beaters = {id(r): sum(1 for o in left if o is not r and order.beats(o, r)) for r in left}
    ranked: list[Rule] = []
    while left:
        free = [r for r in left if beaters[id(r)] == 0] or left[:1]  # a cycle: `check` has refused the policy
        for rule in free:
            left.remove(rule)
            for other in left:
                if order.beats(rule, other):
                    beaters[id(other)] -= 1
        ranked += free
    for i, rule in enumerate(ranked):
        if rule.guard is None and all(order.beats(rule, o) for o in ranked[i + 1 :]):
            ranked = ranked[: i + 1]
            break
    sure = order.unbeaten(ranked) if all(r.guard is None for r in ranked) else ()
    return Contest(tuple(ranked), sure)


def winners(found: Contest, guards: Guards, order: Order) -> tuple[Rule, ...]:
    """The unbeaten candidates. A guard is asked only where the outcome can depend on it."""
    if found.sure:
        return found.sure
    standing: list[Rule] = []
    beaten: list[Rule] = []
    for rule in found.rules:
        if (standing and any(order.beats(w, rule) for w in standing)) or (
            beaten and any(order.beats(b, rule) and guards.hold(b.guard) for b in beaten)
        ):
            beaten.append(rule)
        elif guards.hold(rule.guard):
            standing.append(rule)
    return tuple(standing)
