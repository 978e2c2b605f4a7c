"""When an answer that reads the clock may change: the crossings of guards and computed values, solved ahead.

`idle()` and `age()` grow by one second a second, so a comparison with them is a line that crosses once; its time is
worked out exactly. Functions that drift in other ways (`next_use()`, probabilities) are looked at again at idle times
of 1, 1.5, 2, 3, 4, 6, … seconds. While a request of the owner runs, `idle()` stands still and crosses nothing, and
what drifts is looked at again at such ages of the owner: a request that runs for hours is not read every second. Who
keeps plans reads them again when the owner goes idle. `plan` makes `valid_until` of it, so that nothing is polled.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from kvpolicy import words
from kvpolicy.policy.code import Code, code
from kvpolicy.policy.compiled import Rule, Value
from kvpolicy.policy.model import State, Subject
from kvpolicy.policy.terms import COMPARISONS, DRIFTING, LINEAR_IN_TIME, Apply, Constant, Read, Term, reads
from kvpolicy.request import Owner

_AFTER_S = 1e-6  # how long after a crossing an answer is read that changes only beyond it
_LOOKS = tuple(part * (1 << n) for n in range(18) for part in (1.0, 1.5))  # idle seconds
_TIMED = LINEAR_IN_TIME | DRIFTING

Line = tuple[float, float]  # value now, change per second


def is_timed(term: Term) -> bool:
    """Whether a term's value can change with time alone."""
    return _known(term)[1]


# Terms are compared by value, which takes as long as they are large; a kept one is found again by its address.
_terms: dict[int, tuple[Term, bool, Code]] = {}
_TERMS_KEPT = 4096


def _known(term: Term) -> tuple[Term, bool, Code]:
    found = _terms.get(id(term))
    if found is None:
        if len(_terms) >= _TERMS_KEPT:
            _terms.clear()
        found = _terms[id(term)] = (term, any(read.function in _TIMED for read in reads(term)), code(term))
    return found


def timed_rules(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """The rules whose guard or values can change with time alone."""
    return tuple(
        r
        for r in rules
        if (r.condition is not None and is_timed(r.condition))
        or any(is_timed(t) for v in r.values.values() for t in v.terms)
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
        if rule.condition is not None:
            self.watch(rule.condition)
        for value in rule.values.values():
            self.value(value)

    def value(self, value: Value) -> None:
        """The crossings of a value: for a rank, the next time it rounds to another."""
        for term in value.terms:
            line = self.watch(term)
            if line is None or line[1] == 0:
                continue
            if value.property == "priority":
                self._next_rank(line)
            else:
                self._looks()

    def watch(self, term: Term) -> Line | None:
        """Note the crossings within a term; its line, where it has one."""
        if not is_timed(term):
            found = self._value(term)
            return None if found is None or isinstance(found, str) else (float(found), 0.0)
        if isinstance(term, Read):
            return self._read(term)
        if isinstance(term, Constant):  # pragma: no cover - never timed
            return None
        lines = [self.watch(o) for o in term.operands]
        if term.operator in COMPARISONS:
            self._crossing(term.operator, lines[0], lines[1])
            return None
        if term.operator in ("and", "or", "not"):
            return None
        return self._combined(term, lines)

    def _read(self, term: Read) -> Line | None:
        if term.function in LINEAR_IN_TIME:
            found = self._value(term)
            if found is None or isinstance(found, str):
                return None
            if term.function == "idle" and not self._idles:
                if _is_nameless(self.subject.owner):
                    self._looks()  # it may be many users, and then not all its plans are read when it goes idle
                return float(found), 0.0
            return float(found), 1.0
        if term.function in DRIFTING:
            self._looks()
        return None

    def _value(self, term: Term) -> float | bool | str | None:
        return _known(term)[2](self.subject, self.state)

    def _combined(self, term: Apply, lines: list[Line | None]) -> Line | None:
        if term.operator == "else":
            return lines[0] if self._value(term.operands[0]) is not None else lines[1]
        if term.operator == "log2":
            if lines[0] is not None and lines[0][1] != 0:
                self._looks()
            return None
        known = [line for line in lines if line is not None]
        if len(known) < len(lines):
            return None
        if term.operator in ("min", "max", "clamp"):
            for i, one in enumerate(known):
                for other in known[i + 1 :]:
                    self._crossing("=", one, other)
            present = self._value(term)
            return next((line for line in known if line[0] == present), None)
        return _arithmetic(term.operator, known)

    def _crossing(self, operator: str, left: Line | None, right: Line | None) -> None:
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

    def _looks(self) -> None:
        if self._looked:
            return
        self._looked = True
        grown = self.state.read("idle" if self._idles else "age", None, self.subject) or 0.0
        for look in _LOOKS:
            self._note(self.now + look - grown)

    def _note(self, at: float) -> None:
        if at > self.now:
            self.times.add(at)


def _is_nameless(owner: Owner) -> bool:
    return owner.session is None and owner.run is None and owner.agent is None and owner.branch is None


def _arithmetic(operator: str, lines: list[Line]) -> Line | None:
    """The line of a sum, difference, product or ratio; None where it is no line."""
    if operator == "neg":
        return -lines[0][0], -lines[0][1]
    (a, up), (b, across) = lines
    if operator == "+":
        return a + b, up + across
    if operator == "-":
        return a - b, up - across
    if operator == "*" and (up == 0 or across == 0):
        return a * b, up * b + across * a
    if operator == "/" and across == 0 and b != 0:
        return a / b, up / b
    return None
