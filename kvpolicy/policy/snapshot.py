"""A state made of assumptions: what `test` blocks and `explain` decide in.

`given` makes spans, `assume` gives functions their answers, `at` lets something happen, `then` moves the clock.
Whatever is asked that was not assumed is noted down and has no answer; who asked makes an error of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvpolicy import words
from kvpolicy.faults import Place
from kvpolicy.language import syntax
from kvpolicy.language.codes import UNIT_MISMATCH
from kvpolicy.policy.matching import Matcher, matcher
from kvpolicy.policy.model import EventPattern, IntervalPattern, Opening, Subject
from kvpolicy.policy.settle import Lets, condition_values, fault, settle
from kvpolicy.policy.terms import Constant, Read, Term
from kvpolicy.policy.timeline import Happening, opening_of
from kvpolicy.request import Owner
from kvpolicy.units import format_duration

_OWNER_FIELDS = ("session", "run", "agent", "branch")


@dataclass(frozen=True, slots=True)
class _Assumed:
    function: str
    argument: object
    value: float | None
    spans: Matcher | None


class Snapshot:
    """Fulfils `policy.model.State`. Its clock starts at 0."""

    def __init__(self, lets: Lets | None = None, group: str = "", *, lenient: bool = False) -> None:
        """lenient: a function that always has an answer counts as 0 where it is not assumed (`explain`)."""
        self._lenient = lenient
        self._lets = lets or Lets()
        self._group = group
        self._now = 0.0
        self._events: list[Happening] = []
        self._assumed: list[_Assumed] = []
        self.missing: dict[str, None] = {}  # functions that were asked for and not assumed, as written

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return self._now

    @property
    def events(self) -> tuple[Happening, ...]:
        """What has happened so far, in order."""
        return tuple(self._events)

    def happen(self, event: syntax.Event) -> None:
        """`at EVENT`: its conditions are what it states."""
        self._events.append(Happening(self._now, event.name, self._stated(event.conditions)))

    def wait(self, duration: syntax.Expression) -> None:
        """`then 3min`."""
        self._now += max(0.0, self._number(duration))

    def assume(self, call: syntax.Call, value: syntax.Expression, spans: syntax.Match | None) -> None:
        """`assume p95(tool.duration) = 800ms for turn`; the value may be `nothing` (no data yet) or `never`."""
        term = settle(call, self._lets, self._group)
        nothing = isinstance(value, syntax.Name) and value.path == ("nothing",)
        number = None if nothing else self._number(value)
        only = None if spans is None else matcher(spans, self._lets, self._group)
        if not isinstance(term, Read):
            raise fault(UNIT_MISMATCH, call.place, f"'{call.function}' is worked out, not measured; assume its parts")
        argument = term.argument if term.within is None else self._constant(term.within, call.place)
        self._assumed.append(_Assumed(term.function, argument, number, only))

    def span(self, match: syntax.Match, index: int = 0) -> Subject:
        """`given turn[agent = coder, tokens = 12k]`: a span with the attributes that stand there."""
        attributes = self._stated(match.conditions)
        fields = {name: _word(attributes.get(name)) for name in _OWNER_FIELDS}
        return Subject(match.kind, attributes, Owner(_word(attributes.get("tenant")) or "default", **fields), index)

    def opening(self, interval: IntervalPattern, subject: Subject) -> Opening | None:
        """The innermost opening for the span's owner."""
        return opening_of(interval, self._events, subject.attributes, self._now)

    def read(self, function: str, argument: object, subject: Subject) -> float | None:
        """The assumption made last that fits the call and the span; None, noted in `missing`, where there is none."""
        for row in reversed(self._assumed):
            fits = row.spans is None or row.spans.matches(subject.kind, subject.attributes)
            if fits and row.function == function and row.argument == argument:
                return row.value
        self.missing[written(function, argument)] = None
        return 0.0 if self._lenient and not words.FUNCTIONS[function][2] else None

    def compiled(self, match: syntax.Match) -> Matcher:
        """A match of the test, ready to be tried on its spans."""
        return matcher(match, self._lets, self._group)

    def _stated(self, conditions: tuple[syntax.Condition, ...]) -> dict[str, object]:
        found: dict[str, object] = {}
        for condition in conditions:
            if condition.operator != "=":
                message = f"write '{condition.attribute} = …': a span or event of a test has one value each"
                raise fault(UNIT_MISMATCH, condition.place, message)
            value = condition_values(condition, self._lets, self._group)[0]
            whole = isinstance(value, float) and value.is_integer()
            found[condition.attribute] = int(value) if whole and isinstance(value, float) else value
        return found

    def _number(self, expression: syntax.Expression) -> float:
        return self._constant(settle(expression, self._lets, self._group), expression.place)

    def _constant(self, term: Term, place: Place) -> float:
        if not isinstance(term, Constant) or isinstance(term.value, str):
            raise fault(UNIT_MISMATCH, place, "write a fixed value here")
        return term.value


def written(function: str, argument: object) -> str:
    """A call as an author would write it."""
    if argument is None:
        return f"{function}()"
    if isinstance(argument, EventPattern):
        return f"{function}({argument.name})"
    if isinstance(argument, int | float):
        return f"{function}(within {format_duration(argument)})"
    return f"{function}({argument})"


def _word(value: object) -> str | None:
    return value if isinstance(value, str) else None
