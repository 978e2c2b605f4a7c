"""What a state answers while one plan is made: what is the owner's is asked once, and spans for which all that decides
them is the same are decided once.

A menu asks functions one after the other, and which it asks next depends on nothing but what the last ones answered
and which intervals are open. So what was asked for one span is a way through answers, and at its end stands what was
decided; the next span is led along by its own answers. `asking` keeps it for one plan, for a state is one snapshot.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from kvpolicy.directive import Verdict
from kvpolicy.policy.model import IntervalPattern, Opening, State, Subject
from kvpolicy.policy.reach import OF_THE_OWNER

Decided = tuple[Mapping[str, Verdict], float]  # the verdicts, and when they may change
_Call = tuple[str, Any]


class _Fork:
    """The function that is asked next, and where each answer leads: to another fork, or to what was decided."""

    __slots__ = ("call", "ways")

    def __init__(self, call: _Call) -> None:
        self.call = call
        self.ways: dict[float | None, _Fork | Decided] = {}


class Readings:
    """A `State` that asks another one. Answers of the owner are shared where the state answers alike for all kinds."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.now = state.now
        self.idle_since = getattr(state, "idle_since", None)  # None: it cannot tell
        self._of_the_owner: dict[_Call, float | None] = {}
        self._shares = bool(getattr(state, "kind_blind", False))
        self._span: dict[_Call, float | None] = {}  # of the span that is decided now
        self._asked: list[_Call] = []  # for it, in that order
        self._known: dict[Hashable, _Fork | Decided] = {}

    def opening(self, interval: IntervalPattern, subject: Subject) -> Opening | None:
        """As the state has it."""
        return self.state.opening(interval, subject)

    def read(self, function: str, argument: object, subject: Subject) -> float | None:
        """As the state has it. subject: the span that is decided now."""
        call = (function, argument)
        seen = self._span
        if call in seen:
            return seen[call]
        self._asked.append(call)
        owners = self._of_the_owner if self._shares and function in OF_THE_OWNER else None
        if owners is not None and call in owners:
            answer = owners[call]
        else:
            answer = self.state.read(function, argument, subject)
            if owners is not None:
                owners[call] = answer
        seen[call] = answer
        return answer

    def decided(self, what: Hashable, subject: Subject) -> Decided | None:
        """What was decided for a span that everything was answered alike for; None where there was none. Whatever is
        read from now on is read for this span. what: the menu, and its intervals as they stand."""
        self._span, self._asked = {}, []
        at = self._known.get(what)
        while isinstance(at, _Fork):
            at = at.ways.get(self.read(*at.call, subject))
        return at

    def keep(self, what: Hashable, decided: Decided) -> None:
        """What came of the answers that were read since `decided` was asked."""
        if not self._asked:
            self._known[what] = decided
            return
        fork = self._known.get(what)
        if not isinstance(fork, _Fork):
            fork = self._known[what] = _Fork(self._asked[0])
        for call, after in zip(self._asked, self._asked[1:], strict=False):
            way = fork.ways.get(self._span[call])
            if not isinstance(way, _Fork):
                way = fork.ways[self._span[call]] = _Fork(after)
            fork = way
        fork.ways[self._span[self._asked[-1]]] = decided
