"""When an answer that reads the clock may change: the crossings of guards and computed values, solved ahead.

`idle()` and `age()` grow by one second a second, so a comparison with them is a line that crosses once; its time is
worked out exactly. Functions that drift in other ways (`next_use()`, probabilities) are looked at again at idle times
of 1, 1.5, 2, 3, 4, 6, … seconds. While a request of the owner runs, `idle()` stands still and crosses nothing, and
what drifts is looked at again at such ages of the owner: a request that runs for hours is not read every second. Who
keeps plans reads them again when the owner goes idle. `plan` makes `valid_until` of it, so that nothing is polled.
`timing` makes the watchers that a solver is handed to.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from kvpolicy import words
from kvpolicy.policy.compiled import Rule, Value
from kvpolicy.policy.model import State, Subject
from kvpolicy.policy.timing import Line
from kvpolicy.request import Owner

_AFTER_S = 1e-6  # how long after a crossing an answer is read that changes only beyond it
_LOOKS = tuple(part * (1 << n) for n in range(18) for part in (1.0, 1.5))  # idle seconds


def timed_rules(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """The rules whose guard or values can change with time alone."""
    return tuple(
        rule
        for rule in rules
        if (rule.guard is not None and rule.guard.watcher is not None)
        or any(value.watchers for value in rule.values.values())
    )


class Solver:
    """Gathers the crossings of terms for one span, in one state."""

    def __init__(self, subject: Subject, state: State) -> None:
        self.subject, self.state = subject, state
        self.now = state.now
        self.times: set[float] = set()
        self._watched: set[int] = set()
        self._looked = False
        ask = getattr(state, "idle_since", None)
        self._idles = ask is None or ask(subject.owner) is not None  # a state that cannot tell is asked for `idle()`

    def rule(self, rule: Rule) -> None:
        """The crossings of a rule's guard and values; once, however often it is asked."""
        if id(rule) in self._watched:
            return
        self._watched.add(id(rule))
        guard = rule.guard
        if guard is not None and guard.watcher is not None and id(guard) not in self._watched:
            self._watched.add(id(guard))
            guard.watcher(self)
        for value in rule.values.values():
            self.value(value)

    def value(self, value: Value) -> None:
        """The crossings of a value: for a rank, the next time it rounds to another."""
        for watch in value.watchers:
            line = watch(self)
            if line is None or line[1] == 0:
                continue
            if value.property == "priority":
                self._next_rank(line)
            else:
                self.look_again()

    def growing(self, function: str) -> Line | None:
        """The line of `idle()` or `age()`."""
        found = self.state.read(function, None, self.subject)
        if found is None:
            return None
        if function == "idle" and not self._idles:
            if _is_nameless(self.subject.owner):
                self.look_again()  # it may be many users, and then not all its plans are read when it goes idle
            return float(found), 0.0
        return float(found), 1.0

    def crossing(self, operator: str, left: Line | None, right: Line | None) -> None:
        """Note when two lines cross, where a comparison changes there."""
        if left is None or right is None:
            return
        apart, speed = left[0] - right[0], left[1] - right[1]
        if speed == 0 or not math.isfinite(apart):
            return
        at = self.now - apart / speed
        rising = ("<", ">=") if speed > 0 else (">", "<=")  # these change at the crossing, the others beyond it
        if operator in ("=", "!=") or operator in rising:
            self._note(at)
        if operator not in rising:
            self._note(at + _AFTER_S)

    def look_again(self) -> None:
        """Note the times at which what drifts is looked at; once, however often it is asked."""
        if self._looked:
            return
        self._looked = True
        grown = self.state.read("idle" if self._idles else "age", None, self.subject) or 0.0
        for look in _LOOKS:
            self._note(self.now + look - grown)

    def _next_rank(self, line: Line) -> None:
        value, speed = line
        low, high = words.PRIORITY_RANGE
        if not math.isfinite(value):
            return
        if speed > 0:
            edge = max(math.floor(value + 0.5), low) + 0.5
            if edge < high:
                self._note(self.now + (edge - value) / speed)
        else:
            edge = min(math.floor(value + 0.5), high) - 0.5
            if edge > low:
                self._note(self.now + (edge - value) / speed + _AFTER_S)

    def _note(self, at: float) -> None:
        if at > self.now:
            self.times.add(at)


def _is_nameless(owner: Owner) -> bool:
    return owner.session is None and owner.run is None and owner.agent is None and owner.branch is None
