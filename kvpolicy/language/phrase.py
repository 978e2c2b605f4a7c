"""Expressions back in words, for messages: short, on one line, as an author would write them."""

from __future__ import annotations

from kvpolicy.language import syntax

_LONGEST = 60


def phrase(node: syntax.Expression) -> str:
    """The text of an expression, cut where it is long."""
    text = _text(node, 0)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


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
            return f"{operator}{' ' if operator == 'not' else ''}{_text(operand, depth + 1)}"
        case syntax.Binary(operator=operator, left=left, right=right):
            return f"{_text(left, depth + 1)} {operator} {_text(right, depth + 1)}"
    raise AssertionError(node)
