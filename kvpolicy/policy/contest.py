"""Who decides one property among several candidates, with as few questions to the state as the outcome needs.

`resolve` makes a contest once for a set of open intervals and asks it for every span.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import cast

from kvpolicy.policy.compiled import Guard, Rule
from kvpolicy.policy.model import State, Subject
from kvpolicy.policy.order import Order
from kvpolicy.policy.rivals import beaters


@dataclass(frozen=True, slots=True)
class Contest:
    """The candidates for one property, each after all that beat it, without those that cannot come to decide.

    bits: a number with one bit for each; beaten: those that beat each, as bits. sure: the winners where no guard has a
    say, else ().
    """

    rules: tuple[Rule, ...]
    bits: tuple[int, ...]
    beaten: tuple[int, ...]
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
    by_name = sorted(rules, key=lambda r: (r.name, r.place))
    ranked = _in_turn(list(zip(by_name, *beaters(by_name, order), strict=True)))
    ranked = ranked[: _last(ranked)]
    found = [rule for rule, _, _ in ranked]
    here = sum(bit for _, bit, _ in ranked)
    guarded = any(rule.guard is not None for rule in found)
    sure = () if guarded else tuple(rule for rule, _, beaten in ranked if not beaten & here)
    return Contest(tuple(found), tuple(bit for _, bit, _ in ranked), tuple(beaten for _, _, beaten in ranked), sure)


def _in_turn(rows: list[tuple[Rule, int, int]]) -> list[tuple[Rule, int, int]]:
    """Round after round those that nobody beats of those that are left. Each waits for one that beats it, so that not
    all are looked at in every round."""
    left = sum(bit for _, bit, _ in rows)
    ranked: list[tuple[Rule, int, int]] = []
    waiting: dict[int, list[int]] = {}  # by the bit of one that beats them
    looked = list(range(len(rows)))
    while left:
        ready: list[int] = []
        for at in looked:
            by = rows[at][2] & left
            if by:
                waiting.setdefault(by & -by, []).append(at)
            elif rows[at][1] & left:
                ready.append(at)
        if not ready:  # a cycle: `check` has refused the policy
            ready = [next(at for at, row in enumerate(rows) if row[1] & left)]
        looked = []
        for at in sorted(ready):
            left &= ~rows[at][1]
            ranked.append(rows[at])
            looked += waiting.pop(rows[at][1], ())
    return ranked


def _last(ranked: Sequence[tuple[Rule, int, int]]) -> int:
    """How many can come to decide: up to the first without a guard that beats all behind it."""
    last, beaten_by = len(ranked), -1  # by whom all behind are beaten
    for at in range(len(ranked) - 1, -1, -1):
        rule, bit, beaten = ranked[at]
        if rule.guard is None and beaten_by & bit:
            last = at + 1
        beaten_by &= beaten
    return last


def winners(found: Contest, guards: Guards) -> tuple[Rule, ...]:
    """The unbeaten candidates. A guard is asked only where the outcome can depend on it."""
    if found.sure:
        return found.sure
    standing: list[Rule] = []
    lost: list[tuple[Rule, int]] = []
    stand = fallen = 0
    for rule, bit, beaten in zip(found.rules, found.bits, found.beaten, strict=True):
        if beaten & stand or (
            beaten & fallen and any(beaten & other and guards.hold(loser.guard) for loser, other in lost)
        ):
            lost.append((rule, bit))
            fallen |= bit
        elif guards.hold(rule.guard):
            standing.append(rule)
            stand |= bit
    return tuple(standing)
