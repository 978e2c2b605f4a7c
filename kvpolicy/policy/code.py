"""Terms as closures: what guards and values run as.

A closure takes the span and the state and gives a number in base units, a truth value, NEVER, or None where there is
no data. Only `else` takes notice of a missing value; everything else hands it on: arithmetic and comparison with
nothing give nothing, `and`/`or` give an answer where one side alone decides it. Division by zero, and differences of
two `never`, give no data.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import cast

from kvpolicy.policy.model import NEVER, State, Subject
from kvpolicy.policy.terms import Apply, Constant, Read, Term

Value = float | bool | str | None
Code = Callable[[Subject, State], Value]


def _sum(a: float, b: float) -> Value:
    return _number(a + b)


def _difference(a: float, b: float) -> Value:
    return _number(a - b)


def _product(a: float, b: float) -> Value:
    return _number(a * b)


def _ratio(a: float, b: float) -> Value:
    return None if b == 0 else _number(a / b)


def _number(value: float) -> Value:
    """A difference of two `never` and the like is no number: no data."""
    if value == math.inf:
        return NEVER
    return None if value != value else value  # noqa: PLR0124 - the quick test for NaN


_STRICT: dict[str, Callable[[float, float], Value]] = {
    "+": _sum,
    "-": _difference,
    "*": _product,
    "/": _ratio,
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def code(term: Term) -> Code:
    """The closure of a term; a term without calls gives a constant closure."""
    if isinstance(term, Constant):
        value = term.value
        return lambda subject, state: value
    if isinstance(term, Read):
        return _read(term)
    operands = tuple(code(o) for o in term.operands)
    return _operator(term.operator, operands)


def run_constant(term: Apply) -> Value:
    """The value of an operator over constants; no state is read."""
    nothing = cast("Subject", None), cast("State", None)
    return code(term)(*nothing)


def _read(term: Read) -> Code:
    function, argument = term.function, term.argument
    if term.within is None:
        return lambda subject, state: state.read(function, argument, subject)
    within = code(term.within)

    def read(subject: Subject, state: State) -> Value:
        limit = within(subject, state)
        return None if limit is None else state.read(function, limit, subject)

    return read


def _operator(operator: str, operands: tuple[Code, ...]) -> Code:
    if operator == "else":
        return _else(*operands)
    if operator in ("and", "or"):
        return _junction(operands, decisive=operator == "or")
    if operator == "not":
        return _not(operands[0])
    if operator == "neg":
        inner = operands[0]
        return _strict(_difference, lambda subject, state: 0.0, inner)
    if operator in _STRICT:
        return _strict(_STRICT[operator], *operands)
    if operator == "log2":
        return _log2(operands[0])
    return _pick(operator, operands)


def _log2(operand: Code) -> Code:
    """Of nothing or less than nothing it is below every number, so that a rank computed from it is the lowest."""

    def run(subject: Subject, state: State) -> Value:
        value = operand(subject, state)
        if value is None:
            return None
        number = cast("float", value)
        return _number(math.log2(number)) if number > 0 else -math.inf

    return run


def _else(left: Code, right: Code) -> Code:
    def run(subject: Subject, state: State) -> Value:
        value = left(subject, state)
        return right(subject, state) if value is None else value

    return run


def _junction(operands: tuple[Code, ...], *, decisive: bool) -> Code:
    def run(subject: Subject, state: State) -> Value:
        missing = False
        for operand in operands:
            value = operand(subject, state)
            if value is None:
                missing = True
            elif bool(value) is decisive:
                return decisive
        return None if missing else not decisive

    return run


def _not(operand: Code) -> Code:
    def run(subject: Subject, state: State) -> Value:
        value = operand(subject, state)
        return None if value is None else not value

    return run


def _strict(apply: Callable[[float, float], Value], left: Code, right: Code) -> Code:
    def run(subject: Subject, state: State) -> Value:
        a = left(subject, state)
        if a is None:
            return None
        b = right(subject, state)
        return None if b is None else apply(a, b)  # type: ignore[arg-type]  # `cast` is a call

    return run


def _pick(operator: str, operands: tuple[Code, ...]) -> Code:
    def run(subject: Subject, state: State) -> Value:
        values = [operand(subject, state) for operand in operands]
        if any(v is None for v in values):
            return None
        numbers = cast("list[float]", values)
        if operator == "clamp":
            value, low, high = numbers
            return max(low, min(value, high))
        return min(numbers) if operator == "min" else max(numbers)

    return run
