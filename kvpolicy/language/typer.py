"""The types of expressions, by what they are made of.

`check` asks for the type of every expression and says what its place needs; faults are collected, one for each slip.
A type that is already faulty is silent from there on. Made in layers, each in its file: places, operators, calls, and
here literals, names and `let`.
"""

from __future__ import annotations

from kvpolicy import units, words
from kvpolicy.faults import Diagnostic
from kvpolicy.language import codes, syntax
from kvpolicy.language.build_expressions import BROKEN
from kvpolicy.language.habits import example
from kvpolicy.language.scope import Scope
from kvpolicy.language.spelling import is_worth_it, nearest
from kvpolicy.language.type_calls import CallTyper
from kvpolicy.language.types import (
    BOOL,
    BYTES,
    DURATION,
    INT,
    NEVER,
    NUMBER,
    PERCENT,
    SILENT,
    STRING,
    TOKENS,
    Type,
    cut,
)

_OF_UNIT = {
    units.DURATION: DURATION, units.TOKENS: TOKENS, units.BYTES: BYTES, units.PERCENT: PERCENT
}  # fmt: skip

# What may stand in a function's parentheses, for a message.
_SAMPLES = {
    "series": "tool.duration",
    "tier": "gpu",
    "kind": "system",
    "within": "within 1min",
    "within?": "",
    "event": "tool_result",
}


class Typer(CallTyper):
    """Types of expressions within one file set. `faults` grows."""

    def __init__(self, scope: Scope, faults: list[Diagnostic]) -> None:
        super().__init__(scope, faults)
        self._lets: dict[tuple[str, str], Type] = {}

    def infer(self, node: syntax.Expression, group: str) -> Type:
        """The type of an expression, its faults told."""
        match node:
            case syntax.Literal():
                return self._literal(node)
            case syntax.Text():
                return Type(STRING)
            case syntax.Name():
                return self._name(node, group)
            case syntax.Call():
                return self._call(node, group)
            case syntax.Unary():
                return self._unary(node, group)
            case syntax.Binary():
                return self._binary(node, group)
        raise AssertionError(node)

    def let(self, key: tuple[str, str]) -> Type:
        """The type of a `let`; `lets.check_lets` has worked it out before anything that uses it."""
        return self._lets.get(key, SILENT)

    def settle_let(self, key: tuple[str, str]) -> None:
        """Work out the type of a `let` whose own names are settled."""
        self._lets[key] = self.infer(self.scope.lets[key].value, key[0])

    def _literal(self, node: syntax.Literal) -> Type:
        quantity = node.quantity
        if quantity.unit == units.COUNT:
            return Type(INT if quantity.whole else NUMBER)
        if quantity.unit == units.DURATION and abs(quantity.value) > words.LONGEST_DURATION_S:
            longest = units.format_duration(words.LONGEST_DURATION_S)
            self.faults.append(
                codes.CAPPED.at(node.place, f"{cut(node.text)} is longer than {longest} and counts as {longest}")
            )
        return Type(_OF_UNIT[quantity.unit])

    def _name(self, node: syntax.Name, group: str) -> Type:
        written = ".".join(node.path)
        if node.path == BROKEN:
            return SILENT
        key = self.scope.find_let(node.path, group)
        if key is not None:
            return self.let(key)
        if node.path in {("yes",), ("no",)}:
            return Type(BOOL)
        if node.path == ("never",):
            return Type(NEVER)
        if node.path[-1] in self.scope.lost:
            return SILENT
        if written in words.FUNCTIONS:
            asked = (_SAMPLES.get(place, "…") for place in words.FUNCTIONS[written][0])
            fix = f"a function is written with parentheses: `{written}({', '.join(asked)})`"
        elif written in {"forever", "infinite", "infinity", "inf", "always", "unlimited"}:
            fix = "leave a `ttl` without end out: the rank stands as long as the claim; `retention: pin` protects so"
        elif written in words.SERIES:
            fix = f"ask for a part of it, such as `p95({written}) else 5s`"
        elif written in {"true", "false", "on", "off"}:
            fix = f"write `{'yes' if written in {'true', 'on'} else 'no'}`"
        elif written in words.ATTRIBUTES:
            fix = f"'{written}' is said of a span, in brackets behind it, such as `{example(written)}`"
        else:
            lets = [name if owner in {"", group} else f"{owner}.{name}" for owner, name in self.scope.lets]
            known = (*lets, *(f"{name}()" for name in words.FUNCTIONS), "yes", "no", "never")
            near = nearest(written, known) if is_worth_it(len(self.faults), len(known)) else None
            fix = f"did you mean `{near}`?" if near else f"define it: `let {node.path[-1]} = …`"
        self.faults.append(codes.UNKNOWN_NAME.at(node.place, f"'{written}' is not defined", fix=fix))
        return SILENT
