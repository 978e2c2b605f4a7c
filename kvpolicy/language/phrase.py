"""Expressions back in words, for messages: short, on one line, as an author would write them."""

from __future__ import annotations

from kvpolicy.language import syntax

_LONGEST = 60


def phrase(node: syntax.Expression) -> str:
    """The text of an expression, cut where it is long."""
    text = _text(node, 0)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


# How strongly operators bind; comparisons 4. `else` goes to the right, the others to the left.
_BINDS = {"or": 1, "and": 2, "not": 3, "+": 5, "-": 5, "*": 6, "/": 6, "else": 7}


def _inside(node: syntax.Expression, least: int, depth: int) -> str:
    """An operand, in parentheses where it would not hold together without."""
    text = _text(node, depth + 1)
    if isinstance(node, syntax.Binary):
        binds = _BINDS.get(node.operator, 4)
    else:
        binds = 3 if isinstance(node, syntax.Unary) and node.operator == "not" else 9
    return text if binds >= least else f"({text})"


def _text(node: syntax.Expression, depth: int) -> str:
    if depth > 6:
        return "…"
    match node:
        case syntax.Literal(text=text):
            return text
        case syntax.Text(value=value):
            return f'"{value}"'
        case syntax.Name(path=path):
            return ".".join(path)
        case syntax.Call(function=function, within=within) if within is not None:
            return f"{function}(within {_text(within, depth + 1)})"
        case syntax.Call(function=function, arguments=arguments):
            return f"{function}({', '.join(_text(argument, depth + 1) for argument in arguments)})"
        case syntax.Unary(operator=operator, operand=operand):
            inner = _inside(operand, _BINDS["not"] if operator == "not" else 7, depth)
            return f"{operator}{' ' if operator == 'not' else ''}{inner}"
        case syntax.Binary(operator=operator, left=left, right=right):
            binds = _BINDS.get(operator, 4)
            one, two = (binds + 1, binds) if operator == "else" else (binds, binds + 1)
            return f"{_inside(left, one, depth)} {operator} {_inside(right, two, depth)}"
    raise AssertionError(node)
