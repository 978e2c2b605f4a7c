"""Expressions, selectors and events from tokens: the lower half of the transformer that runs inside the parser.

Its callbacks are called by lark while it reduces; `build.Builder` adds the statements. An expression travels with
its depth, so that no later recursion over the tree can run out of stack.
"""

from __future__ import annotations

from typing import Any

from lark import Token, Transformer

from kvpolicy.faults import Diagnostic, Place
from kvpolicy.language import codes, syntax
from kvpolicy.units import DURATION, Quantity, UnitFault, parse_quantity

DEEPEST = 100  # levels of an expression; deeper ones are refused
LARGEST = 1e15  # a count, size or length above it is a slip, and would lose its last digits
BROKEN = ("",)  # the path of a Name that stands where a faulty expression stood

Grown = tuple[syntax.Expression, int]
Children = list[Any]


class ExpressionBuilder(Transformer):  # type: ignore[type-arg]
    """Callbacks of expressions. `file` and `faults` belong to the text being parsed."""

    def __init__(self) -> None:
        super().__init__(visit_tokens=False)
        self.file = ""
        self.faults: list[Diagnostic] = []

    def place(self, token: Token, last: Token | None = None) -> Place:
        """From the first character of `token` to the last of `last`."""
        end = last or token
        return Place(self.file, token.line or 1, token.column or 1, end.end_line or 1, end.end_column or 1)

    def _to(self, start: Place, end: Place) -> Place:
        return Place(self.file, start.line, start.column, end.end_line, end.end_column)

    def _deep(self, node: syntax.Expression, depth: int) -> Grown:
        if depth <= DEEPEST:
            return node, depth
        if depth == DEEPEST + 1:
            self.faults.append(
                codes.SYNTAX.at(
                    node.place,
                    f"this expression is nested more than {DEEPEST} levels deep",
                    fix="name a part of it with `let` and use the name",
                )
            )
        return syntax.Name(BROKEN, node.place), DEEPEST + 2

    # --- atoms ------------------------------------------------------------------------------------------

    def quantity(self, token: Token, sign: str = "") -> syntax.Literal | syntax.Name:
        """A literal; a Name of the path BROKEN where the unit or the size is at fault."""
        place = self.place(token)
        text = sign + str(token)
        try:
            quantity = parse_quantity(text)
        except UnitFault as fault:
            self.faults.append(unit_fault(place, text, str(fault)))
            return syntax.Name(BROKEN, place)
        if quantity.unit != DURATION and abs(quantity.value) > LARGEST:
            shown = text if len(text) <= 24 else text[:20] + "…"
            self.faults.append(codes.OUT_OF_RANGE.at(place, f"{shown} is larger than any number used here"))
            return syntax.Name(BROKEN, place)
        return syntax.Literal(quantity, text, place)

    def literal(self, children: Children) -> Grown:
        return self.quantity(children[0]), 1

    def text(self, children: Children) -> Grown:
        return syntax.Text(unquote(children[0]), self.place(children[0])), 1

    def dotted(self, children: Children) -> Grown:
        parts = tuple(str(child) for child in children if child.type != "DOT")
        return syntax.Name(parts, self.place(children[0], children[-1])), 1

    def group(self, children: Children) -> Grown:
        node, depth = children[1]
        return self._deep(node, depth + 1)

    def call(self, children: Children) -> Grown:
        arguments = [child for child in children[1:] if isinstance(child, tuple)]
        deepest = max((depth for _, depth in arguments), default=0)
        place = self.place(children[0], children[-1])
        node = syntax.Call(str(children[0]), tuple(argument for argument, _ in arguments), None, place)
        return self._deep(node, deepest + 1)

    def call_within(self, children: Children) -> Grown:
        within, depth = children[3]
        node = syntax.Call(str(children[0]), (), within, self.place(children[0], children[-1]))
        return self._deep(node, depth + 1)

    # --- operators --------------------------------------------------------------------------------------

    def unary(self, children: Children) -> Grown:
        operator, (operand, depth) = children
        place = self._to(self.place(operator), operand.place)
        if operator.type == "MINUS" and isinstance(operand, syntax.Literal) and not operand.text.startswith("-"):
            quantity = operand.quantity
            negative = Quantity(-quantity.value, quantity.unit, quantity.whole)
            return syntax.Literal(negative, "-" + operand.text, place), depth
        return self._deep(syntax.Unary(str(operator), operand, place), depth + 1)

    def binary(self, children: Children) -> Grown:
        (left, left_depth), operator, (right, right_depth) = children
        node = syntax.Binary(str(operator), left, right, self._to(left.place, right.place))
        return self._deep(node, max(left_depth, right_depth) + 1)

    # --- selectors and events ---------------------------------------------------------------------------

    def value(self, children: Children) -> syntax.Expression:
        token = children[-1]
        if token.type == "QUANTITY":
            return self.quantity(token, "-" if len(children) > 1 else "")
        if token.type == "STRING":
            return syntax.Text(unquote(token), self.place(token))
        return syntax.Name((str(token),), self.place(token))

    def attr(self, children: Children) -> syntax.Condition:
        attribute, operator, value = children
        return syntax.Condition(str(attribute), str(operator), (value,), self._to(self.place(attribute), value.place))

    def attr_in(self, children: Children) -> syntax.Condition:
        values = tuple(child for child in children[2:] if not isinstance(child, Token))
        return syntax.Condition(str(children[0]), "in", values, self.place(children[0], children[-1]))

    attr_in_nothing = attr_in

    def attrs(self, children: Children) -> tuple[tuple[syntax.Condition, ...], Place]:
        conditions = tuple(child for child in children if isinstance(child, syntax.Condition))
        return conditions, self.place(children[0], children[-1])

    def match(self, children: Children) -> syntax.Match:
        if not isinstance(children[0], Token):
            conditions, place = children[0]
            return syntax.Match("any", conditions, place)
        kind, attrs = children
        place = self.place(kind)
        if attrs is None:
            return syntax.Match(str(kind), (), place)
        return syntax.Match(str(kind), attrs[0], self._to(place, attrs[1]))

    def selector(self, children: Children) -> tuple[syntax.Match, ...]:
        return tuple(child for child in children if isinstance(child, syntax.Match))

    def event(self, children: Children) -> syntax.Event:
        name, attrs = children
        place = self.place(name)
        if attrs is None:
            return syntax.Event(str(name), (), place)
        return syntax.Event(str(name), attrs[0], self._to(place, attrs[1]))


def unquote(token: Token) -> str:
    """The text between the quotes; `\\"` and `\\\\` stand for a quote and a backslash."""
    body = str(token)[1:-1]
    return body.replace('\\"', '"').replace("\\\\", "\\") if "\\" in body else body


def unit_fault(place: Place, text: str, message: str) -> Diagnostic:
    """The diagnostic of a number whose unit does not exist."""
    from kvpolicy import words
    from kvpolicy.language.spelling import nearest
    from kvpolicy.language.two_units import seconds

    number = text.rstrip("_%" + "".join(map(chr, (*range(65, 91), *range(97, 123)))))
    unit = text[len(number) :].strip()
    known = (*words.DURATION_UNITS, *words.TOKEN_UNITS, *words.BYTE_UNITS, words.PERCENT_UNIT)
    long_names = {
        "seconds": "s", "second": "s", "sec": "s", "secs": "s", "minutes": "min", "minute": "min", "mins": "min",
        "hours": "h", "hour": "h", "hrs": "h", "hr": "h", "days": "d", "day": "d", "milliseconds": "ms",
        "millis": "ms", "msec": "ms", "K": "k", "m": "min", "G": "GiB", "GB": "GiB", "MB": "MiB", "KB": "KiB",
        "TB": "TiB", "percent": "%", "tokens": "", "pct": "%",
    }  # fmt: skip
    spelled = long_names.get(unit)
    if spelled is None:
        by_long_name = nearest(unit, tuple(long_names))
        spelled = nearest(unit, known) or (long_names[by_long_name] if by_long_name else None)
    fix = f"write {number.strip()}{spelled}" if spelled is not None else None
    together = seconds(text)
    if together is not None:
        message, fix = f"'{text}' has two units; a duration has one number and one unit", f"write {together}"
    return codes.UNIT_MISMATCH.at(place, message, fix=fix)
