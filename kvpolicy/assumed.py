"""A state in which some functions have the values that somebody wrote down.

Made for state files (`functions`), over the run state that their events lead to; whatever is not written there is
asked of that state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite

from kvpolicy import words
from kvpolicy.faults import ERROR, InputFault, PolicyFault
from kvpolicy.language import syntax
from kvpolicy.language.check import examine
from kvpolicy.language.load import load_text
from kvpolicy.language.parse import parse
from kvpolicy.policy.matching import Matcher, matcher
from kvpolicy.policy.model import EventPattern, IntervalPattern, Opening, State, Subject
from kvpolicy.policy.settle import Lets, settle
from kvpolicy.policy.terms import Constant, Read, Term
from kvpolicy.request import Owner

_NO_LETS = Lets()


@dataclass(frozen=True, slots=True)
class Assumption:
    """One function's value. argument: as `State.read` gets it. spans: for which it holds, None for all; index: for
    the span at that place alone."""

    function: str
    argument: object
    value: float | None
    spans: Matcher | None = None
    index: int | None = None

    def holds_for(self, subject: Subject) -> bool:
        """Is it about this span?"""
        if self.index is not None:
            return self.index == subject.span
        return self.spans is None or self.spans.matches(subject.kind, subject.attributes)

    @property
    def breadth(self) -> tuple[bool, bool, bool, int]:
        """Sorts narrow before broad: one span, a kind with conditions, a kind, all."""
        spans = self.spans
        if spans is None:
            return self.index is None, True, True, 0
        return True, False, spans.kind == words.ANY_KIND, -len(spans.conditions)


class Assumed:
    """A `State` whose functions answer from a table first. The narrower assumption wins, then the later."""

    def __init__(self, base: State, assumptions: Iterable[Assumption]) -> None:
        self._base = base
        assumptions = tuple(assumptions)
        # Read by `plan`: spans of one kind may then differ in more than what rules match.
        self.per_span = any(a.index is not None or (a.spans and a.spans.conditions) for a in assumptions)
        self._table: dict[tuple[str, object], list[Assumption]] = {}
        for assumption in assumptions:
            self._table.setdefault((assumption.function, _key(assumption.argument)), []).insert(0, assumption)
        for rows in self._table.values():
            rows.sort(key=lambda a: a.breadth)

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

    A value is in the language's notation; a number is a count, None or `nothing` no data, and `never` a value.
    Raises InputFault, in the words of `assume` in a test.
    """
    step = _parsed(call, _written(value), span if isinstance(span, str) else None)
    try:
        term = settle(step.call, _NO_LETS, "")
        nothing = isinstance(step.value, syntax.Name) and step.value.path == ("nothing",)
        number = None if nothing else _constant(settle(step.value, _NO_LETS, ""), call)
        spans = None if step.span is None else matcher(step.span, _NO_LETS, "")
    except PolicyFault as fault:
        raise InputFault(f"'{call}': {fault.diagnostics[0].message}") from None
    if not isinstance(term, Read):
        raise InputFault(f"'{call}' is worked out, not measured; assume its parts")
    argument = term.argument if term.within is None else _constant(term.within, call)
    _check_types(call, _written(value), isinstance(value, str))
    return Assumption(term.function, argument, number, spans, span if isinstance(span, int) else None)


def _parsed(call: str, value: str, span: str | None) -> syntax.Assume:
    """The step that the parts make, its words checked."""
    text = f"assume {call} = {value}" + ("" if span is None else f" for {span}")
    result = parse(f'test "state" {{\n{text}\n}}', "state")
    if result.diagnostics:
        raise InputFault(f"'{text}': {result.diagnostics[0].message}")
    file = result.file
    steps = file.tests[0].steps if file is not None and len(file.tests) == 1 else ()
    if len(steps) != 1 or not isinstance(steps[0], syntax.Assume) or (file is not None and file.rules):
        raise InputFault(f"'{text}': write one call of a function, such as p95(tool.duration), with its value")
    step = steps[0]
    if step.call.function not in words.FUNCTIONS:
        raise InputFault(f"'{step.call.function}' is no function; the functions are {', '.join(words.FUNCTIONS)}")
    if step.span is not None:
        if step.span.kind not in (*words.SPAN_KINDS, words.ANY_KIND):
            raise InputFault(f"'{step.span.kind}' is no span kind; the kinds are {', '.join(words.SPAN_KINDS)}")
        for condition in step.span.conditions:
            if condition.attribute not in words.ATTRIBUTES:
                raise InputFault(f"'{condition.attribute}' is no attribute; there are {', '.join(words.ATTRIBUTES)}")
    return step


def _check_types(call: str, value: str, quoted: bool) -> None:
    """What the checks of a test say of `assume CALL = VALUE`: a value has the unit of what the function gives, so a
    bare number is no duration. quoted: whether the value came as a text, which is how units are written in JSON."""
    found = examine(load_text(f'test "state" {{\nassume {call} = {value}\n}}', "state"))
    wrong = next((fault for fault in found if fault.severity == ERROR), None)
    if wrong is not None:
        mend = f"; {wrong.fix}" if wrong.fix else ""
        strings = "" if quoted else ", as a text in quotes: a bare number in JSON is a count or a share"
        raise InputFault(f"'{call}': {wrong.message}{mend}{strings if wrong.fix else ''}")


def _written(value: str | int | float | None) -> str:
    """A value as the language writes it."""
    if value is None:
        return "nothing"
    if isinstance(value, float):
        if not isfinite(value):
            raise InputFault(f"{value} is no value; write never where something cannot come")
        return f"{value:.9f}".rstrip("0").rstrip(".")
    return str(value)


def _constant(term: Term, call: str) -> float:
    if not isinstance(term, Constant) or isinstance(term.value, str):
        raise InputFault(f"'{call}': write a fixed value, such as 800ms")
    return term.value


def _key(argument: object) -> object:
    """Event patterns agree by name here; durations by value."""
    return argument.name if isinstance(argument, EventPattern) else argument
