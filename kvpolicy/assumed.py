"""A state in which some functions have the values that somebody wrote down.

Made for state files (`functions`), over the run state that their events lead to; whatever is not written there is
asked of that state.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kvpolicy import words
from kvpolicy.faults import InputFault
from kvpolicy.policy.model import NEVER, EventPattern, IntervalPattern, Opening, State, Subject
from kvpolicy.request import Owner
from kvpolicy.units import UnitFault, parse_quantity

_CALL = re.compile(r"\s*(?P<name>[A-Za-z_]\w*)\s*\(\s*(?P<within>within\s+)?(?P<argument>[^()]*?)\s*\)\s*")
_MATCH = re.compile(r"\s*(?P<kind>[A-Za-z_]\w*)\s*(?:\[(?P<conditions>.*)\])?\s*")
_CONDITION = re.compile(r'\s*(?P<name>[A-Za-z_]\w*)\s*=\s*(?:"(?P<text>[^"]*)"|(?P<word>[^\s"]+))\s*')


@dataclass(frozen=True, slots=True)
class Assumption:
    """One function's value. argument: as `State.read` gets it. kind None: for every kind; index None: every span."""

    function: str
    argument: object
    value: float | None
    kind: str | None = None
    conditions: tuple[tuple[str, object], ...] = ()
    index: int | None = None

    def holds_for(self, subject: Subject) -> bool:
        """Is it about this span?"""
        if self.index is not None and self.index != subject.span:
            return False
        if self.kind not in (None, words.ANY_KIND, subject.kind):
            return False
        return all(subject.attributes.get(name) == value for name, value in self.conditions)


class Assumed:
    """A `State` whose functions answer from a table first. The assumption about fewer spans wins, then the later."""

    def __init__(self, base: State, assumptions: Iterable[Assumption]) -> None:
        self._base = base
        assumptions = tuple(assumptions)
        # Read by `plan`: spans of one kind may then differ in more than what rules match.
        self.per_span = any(a.index is not None or a.conditions for a in assumptions)
        self._table: dict[tuple[str, object], list[Assumption]] = {}
        for assumption in assumptions:
            self._table.setdefault((assumption.function, _key(assumption.argument)), []).insert(0, assumption)
        for rows in self._table.values():
            rows.sort(key=lambda a: (a.index is None, a.kind in (None, words.ANY_KIND), -len(a.conditions)))

    @property
    def now(self) -> float:
        """Seconds on the caller's clock."""
        return self._base.now

    def opening(self, interval: IntervalPattern, subject: Subject) -> Opening | None:
        """As the run state has it."""
        return self._base.opening(interval, subject)

    def read(self, function: str, argument: object, subject: Subject) -> float | None:
        """The value written down for this call and span, else the run state's."""
        for assumption in self._table.get((function, _key(argument)), ()):
            if assumption.holds_for(subject):
                return assumption.value
        return self._base.read(function, argument, subject)

    def attributes(self, owner: Owner, branch: str | None = None) -> Mapping[str, object]:
        """Rank, score, status and branch of an owner, or of a branch that it names, where the run state tells them."""
        told = getattr(self._base, "attributes", None)
        return {} if told is None else told(owner, branch)

    def idle_since(self, owner: Owner) -> float | None:
        """When the owner's last use ended, where the run state tells it."""
        ask = getattr(self._base, "idle_since", None)
        return None if ask is None else ask(owner)


def assume(call: str, value: str | int | float | None, span: str | int | None = None) -> Assumption:
    """Read `p95(tool.duration)`, `"800ms"`, and a span: None, its index, or a match such as `turn[agent = coder]`.

    A value is in the language's notation (a number is a count, `never` and `nothing` are values). Raises InputFault.
    """
    found = _CALL.fullmatch(call)
    if found is None:
        raise InputFault(f"'{call}' is no call of a function; write p95(tool.duration) or idle()")
    name = found["name"]
    if name not in words.FUNCTIONS:
        raise InputFault(f"'{name}' is no function; the functions are {', '.join(words.FUNCTIONS)}")
    kind, conditions = _span(span) if isinstance(span, str) else (None, ())
    index = span if isinstance(span, int) else None
    argument = _argument(name, found["argument"], found["within"] is not None)
    return Assumption(name, argument, _value(call, value), kind, conditions, index)


def _argument(name: str, text: str, within: bool) -> object:
    """The argument as `State.read` gets it."""
    if within:
        return _number(text)
    if not text:
        return None
    takes = words.FUNCTIONS[name][0]
    if takes == ("event",):
        return EventPattern(text)
    if takes == ("tier",):
        return words.TIER_ALIASES.get(text, text)
    return text


def _value(call: str, value: str | int | float | None) -> float | None:
    if value is None or value in ("nothing", "null"):
        return None
    if value == "never":
        return NEVER
    if isinstance(value, str):
        return _number(value, call)
    return float(value)


def _number(text: str, call: str | None = None) -> float:
    try:
        return parse_quantity(text).value
    except UnitFault as fault:
        raise InputFault(f"{call}: {fault}" if call else str(fault)) from None


def _span(text: str) -> tuple[str, tuple[tuple[str, object], ...]]:
    found = _MATCH.fullmatch(text)
    if found is None or (found["kind"] not in words.SPAN_KINDS and found["kind"] != words.ANY_KIND):
        raise InputFault(f"'{text}' is no span; write a kind, or a kind with conditions such as turn[agent = coder]")
    conditions: list[tuple[str, object]] = []
    for part in (found["conditions"] or "").split(","):
        condition = _CONDITION.fullmatch(part)
        if condition is None:
            if part.strip():
                raise InputFault(f"'{part.strip()}' in '{text}': only conditions such as agent = coder are read here")
            continue
        name = condition["name"]
        if name not in words.ATTRIBUTES:
            raise InputFault(f"'{name}' in '{text}' is no attribute")
        conditions.append((name, _constant(words.ATTRIBUTES[name], condition["text"] or condition["word"])))
    return found["kind"], tuple(conditions)


def _constant(kind: str, text: str) -> object:
    if kind == "bool":
        return text in ("yes", "true")
    if kind in ("int", "tokens"):
        return int(_number(text))
    return _number(text) if kind == "number" else text


def _key(argument: object) -> object:
    """Event patterns agree by name here; durations by value."""
    return argument.name if isinstance(argument, EventPattern) else argument
