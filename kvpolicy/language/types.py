"""The types of expressions: units that may not be mixed, and values that may have no data yet.

`check` asks for the type of every expression and says what its place needs; faults are collected, one for each slip.
A type that is already faulty is silent from there on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kvpolicy import units, words
from kvpolicy.faults import Diagnostic
from kvpolicy.language import codes, syntax
from kvpolicy.language.build_expressions import BROKEN
from kvpolicy.language.phrase import phrase
from kvpolicy.language.scope import Scope
from kvpolicy.language.spelling import nearest

INT, NUMBER, RATIO, PROBABILITY, PERCENT = "int", "number", "ratio", "probability", "percent"
DURATION, TOKENS, BYTES, BOOL, STRING, NEVER, FAULTY = "duration", "tokens", "bytes", "bool", "string", "never", "?"
PLAIN = frozenset({INT, NUMBER, RATIO, PROBABILITY})
PARTS = frozenset({PERCENT, PROBABILITY, RATIO})
_SPOKEN = {
    INT: "a count", NUMBER: "a number", RATIO: "a ratio", PROBABILITY: "a probability", PERCENT: "a percentage",
    DURATION: "a duration", TOKENS: "a token count", BYTES: "a size in bytes", BOOL: "a condition",
    STRING: "a text", NEVER: "`never`",
}  # fmt: skip
_EXAMPLES = {DURATION: "s", TOKENS: "k", BYTES: "MiB", PERCENT: "%", PROBABILITY: "%"}
_OF_UNIT = {
    units.DURATION: DURATION, units.TOKENS: TOKENS, units.BYTES: BYTES, units.PERCENT: PERCENT
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Type:
    """A kind of value; `maybe`: there may be no data yet."""

    kind: str
    maybe: bool = False


SILENT = Type(FAULTY)


def spoken(kind: str) -> str:
    """A kind in words."""
    return _SPOKEN.get(kind, kind)


class Typer:
    """Types of expressions within one file set. `faults` grows."""

    def __init__(self, scope: Scope, faults: list[Diagnostic]) -> None:
        self.scope = scope
        self.faults = faults
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

    def solid(self, node: syntax.Expression, group: str) -> Type:
        """The type of an expression whose value is used: it must have data, or an `else`."""
        found = self.infer(node, group)
        if found.maybe and found.kind != FAULTY:
            text = phrase(node)
            example = {DURATION: "5s", BYTES: "1MiB", PROBABILITY: "50%", INT: "1", RATIO: "1"}.get(found.kind, "…")
            self.faults.append(
                codes.MISSING_ELSE.at(
                    node.place,
                    f"'{text}' may have no data yet",
                    fix=f"say what counts until then: `{text} else {example}`",
                )
            )
            return SILENT
        return found

    def let(self, key: tuple[str, str]) -> Type:
        """The type of a `let`; `lets.check_lets` has worked it out before anything that uses it."""
        return self._lets.get(key, SILENT)

    def settle_let(self, key: tuple[str, str]) -> None:
        """Work out the type of a `let` whose own names are settled."""
        self._lets[key] = self.infer(self.scope.lets[key].value, key[0])

    # --- leaves -----------------------------------------------------------------------------------------

    def _literal(self, node: syntax.Literal) -> Type:
        quantity = node.quantity
        if quantity.unit == units.COUNT:
            return Type(INT if quantity.whole else NUMBER)
        if quantity.unit == units.DURATION and abs(quantity.value) > words.LONGEST_DURATION_S:
            longest = units.format_duration(words.LONGEST_DURATION_S)
            self.faults.append(
                codes.CAPPED.at(node.place, f"{_cut(node.text)} is longer than {longest} and counts as {longest}")
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
            fix = f"a function is written with parentheses: `{written}()`"
        elif written in words.SERIES:
            fix = f"ask for a part of it, such as `p95({written}) else 5s`"
        else:
            lets = [name if owner in {"", group} else f"{owner}.{name}" for owner, name in self.scope.lets]
            near = nearest(written, (*lets, *(f"{name}()" for name in words.FUNCTIONS), "yes", "no", "never"))
            fix = f"did you mean `{near}`?" if near else f"define it: `let {node.path[-1]} = …`"
        self.faults.append(codes.UNKNOWN_NAME.at(node.place, f"'{written}' is not defined", fix=fix))
        return SILENT

    # --- calls ------------------------------------------------------------------------------------------

    def _call(self, node: syntax.Call, group: str) -> Type:
        signature = words.FUNCTIONS.get(node.function)
        if signature is None:
            near = nearest(node.function, words.FUNCTIONS)
            fix = f"did you mean `{near}`?" if near else f"the functions are {', '.join(words.FUNCTIONS)}"
            self.faults.append(codes.UNKNOWN_NAME.at(node.place, f"there is no function '{node.function}'", fix=fix))
            return SILENT
        wanted, result, maybe = signature
        if "like" in wanted:
            return self._alike(node, group, wanted)
        found = Type(result, maybe)
        if wanted in {("within?",), ("within",)}:
            if node.within is not None:
                self.duration(node.within, group, f"the time within which {node.function} looks")
                return found
            if not node.arguments and wanted == ("within?",):
                return found
            return self._misused(node, f"{node.function} asks for a time", f"write `{node.function}(within 30s)`")
        if node.within is not None:
            return self._misused(node, f"{node.function} takes no `within`", f"write `{node.function}()`")
        if wanted == ("number",):
            return self._plain(node, group, found)
        if not wanted:
            if node.arguments:
                return self._misused(node, f"{node.function} takes nothing", f"write `{node.function}()`")
            return found
        return found if self._argument(node, wanted[0]) else SILENT

    def _plain(self, node: syntax.Call, group: str, result: Type) -> Type:
        """A function of one number without a unit."""
        if len(node.arguments) != 1:
            return self._misused(node, f"{node.function} takes one number", f"write `{node.function}(8)`")
        given = self.solid(node.arguments[0], group)
        if given.kind == FAULTY or given.kind in PLAIN:
            return SILENT if given.kind == FAULTY else result
        text = phrase(node.arguments[0])
        message = f"{node.function} takes a number without a unit, and '{text}' is {spoken(given.kind)}"
        return self._misused(node, message, f"divide it first: `{node.function}({text} / …)`")

    def _argument(self, node: syntax.Call, wanted: str) -> bool:
        """Whether the one argument is a word of the table asked for."""
        tables: dict[str, tuple[str, ...]] = {
            "series": tuple(words.SERIES),
            "event": tuple(words.EVENTS),
            "kind": tuple(words.SPAN_KINDS),
            "tier": (*words.TIERS, *words.TIER_ALIASES),
        }
        table = tables[wanted]
        what = {"series": "what it measures", "kind": "a span kind"}.get(
            wanted, f"a{'n' * (wanted == 'event')} {wanted}"
        )
        argument = node.arguments[0] if len(node.arguments) == 1 else None
        if not isinstance(argument, syntax.Name):
            example = f"write `{node.function}({table[0]})`"
            self._misused(node, f"{node.function} asks for {what}", example)
            return False
        written = ".".join(argument.path)
        if written not in table:
            near = nearest(written, table)
            fix = f"did you mean `{near}`?" if near else f"it can be {', '.join(table)}"
            self.faults.append(codes.UNKNOWN_NAME.at(argument.place, f"'{written}' is not {what}", fix=fix))
            return False
        return True

    def _alike(self, node: syntax.Call, group: str, wanted: tuple[str, ...]) -> Type:
        most = None if "..." in wanted else len(wanted)
        least = len(wanted) - (most is None)
        if len(node.arguments) < least or (most is not None and len(node.arguments) > most):
            number = f"{least} values" if most else f"{least} values or more"
            return self._misused(node, f"{node.function} takes {number}", None)
        found = self.solid(node.arguments[0], group)
        for argument in node.arguments[1:]:
            found = self._like(node, found, node.arguments[0], self.solid(argument, group), argument, node.function)
        return found

    def _misused(self, node: syntax.Call, message: str, fix: str | None) -> Type:
        self.faults.append(codes.UNIT_MISMATCH.at(node.place, message, fix=fix))
        return SILENT

    # --- operators --------------------------------------------------------------------------------------

    def _unary(self, node: syntax.Unary, group: str) -> Type:
        found = self.solid(node.operand, group)
        if found.kind == FAULTY:
            return SILENT
        wanted = found.kind == BOOL if node.operator == "not" else found.kind not in {BOOL, STRING, NEVER}
        if not wanted:
            what = "a condition" if node.operator == "not" else "a quantity"
            return self._mismatch(
                node, f"`{node.operator}` needs {what}, and '{phrase(node.operand)}' is {spoken(found.kind)}"
            )
        return found

    def _binary(self, node: syntax.Binary, group: str) -> Type:
        if node.operator == "else":
            left, right = self.infer(node.left, group), self.infer(node.right, group)
            found = self._like(node, left, node.left, right, node.right, "else")
            return Type(found.kind, right.maybe)
        left, right = self.solid(node.left, group), self.solid(node.right, group)
        if FAULTY in {left.kind, right.kind}:
            return Type(BOOL) if node.operator in _CONDITIONS else SILENT
        if node.operator in {"and", "or"}:
            for side, found in ((node.left, left), (node.right, right)):
                if found.kind != BOOL:
                    text = f"`{node.operator}` joins conditions, and '{phrase(side)}' is {spoken(found.kind)}"
                    self._mismatch(side, text)
            return Type(BOOL)
        if node.operator in {"*", "/"}:
            return self._scaled(node, left.kind, right.kind)
        found = self._like(node, left, node.left, right, node.right, node.operator)
        if node.operator in _CONDITIONS:
            if found.kind in {BOOL, STRING} and node.operator not in {"=", "!="}:
                return self._mismatch(node, f"`{node.operator}` compares quantities, not {spoken(found.kind)}")
            return Type(BOOL)
        if found.kind in {BOOL, STRING, NEVER}:
            return self._mismatch(node, f"`{node.operator}` needs quantities, not {spoken(found.kind)}")
        return found

    def _scaled(self, node: syntax.Binary, left: str, right: str) -> Type:
        for kind, side in ((left, node.left), (right, node.right)):
            if kind in {BOOL, STRING, NEVER}:
                return self._mismatch(side, f"`{node.operator}` needs quantities, not {spoken(kind)}")
        plain = PLAIN | {PERCENT}
        if node.operator == "/" and left == right:
            return Type(RATIO)
        if right in plain:
            scaled = NUMBER if left in plain else left
            return Type(INT if left == right == INT and node.operator == "*" else scaled)
        if left in plain and node.operator == "*":
            return Type(right)
        sign = "multiplied with" if node.operator == "*" else "divided by"
        return self._mismatch(node, f"{spoken(left)} cannot be {sign} {spoken(right)}")

    def _like(
        self,
        node: syntax.Expression,
        left: Type,
        first: syntax.Expression,
        right: Type,
        second: syntax.Expression,
        by: str,
    ) -> Type:
        """The common type of two sides, or a fault where their units differ."""
        kinds = {left.kind, right.kind}
        if FAULTY in kinds:
            return SILENT
        if left.kind == right.kind:
            return Type(left.kind)
        if NEVER in kinds and kinds <= {NEVER, INT, DURATION, NUMBER}:
            return Type((kinds - {NEVER}).pop())
        if kinds == {INT, PROBABILITY}:
            for side, kind in ((first, left.kind), (second, right.kind)):
                if kind == INT and isinstance(side, syntax.Literal) and side.quantity.value > 1:
                    self.faults.append(unit_missing(side, PROBABILITY))
                    return SILENT
        if kinds <= PLAIN:
            return Type(PROBABILITY if PROBABILITY in kinds and by in _CONDITIONS else NUMBER)
        if kinds <= PARTS:
            return Type(PROBABILITY if PROBABILITY in kinds else RATIO)
        for side, kind, other in ((first, left.kind, right.kind), (second, right.kind, left.kind)):
            if kind in {INT, NUMBER} and isinstance(side, syntax.Literal) and other in _EXAMPLES:
                self.faults.append(unit_missing(side, other))
                return SILENT
        link = "instead of" if by == "else" else "beside"
        message = f"'{phrase(second)}' is {spoken(right.kind)} {link} {spoken(left.kind)}: units are not mixed"
        return self._mismatch(second, message)

    def _mismatch(self, node: syntax.Expression, message: str) -> Type:
        self.faults.append(codes.UNIT_MISMATCH.at(node.place, message))
        return SILENT

    # --- what a place needs -----------------------------------------------------------------------------

    def duration(self, node: syntax.Expression, group: str, what: str) -> None:
        """The place needs a duration that is not negative."""
        fits = self.needs(node, group, what, DURATION, lambda kind: kind == DURATION)
        if fits and isinstance(node, syntax.Literal) and node.quantity.value < 0:
            message = f"{what} cannot be negative: {node.text}"
            self.faults.append(codes.OUT_OF_RANGE.at(node.place, message, fix="write 0s for at once"))

    def condition(self, node: syntax.Expression, group: str, what: str) -> None:
        """The place needs a condition."""
        self.needs(node, group, what, BOOL, lambda kind: kind == BOOL)

    def needs(self, node: syntax.Expression, group: str, what: str, wanted: str, fits: Callable[[str], bool]) -> bool:
        """Whether the expression fits its place; a fault where it does not."""
        found = self.solid(node, group)
        if found.kind == FAULTY:
            return False
        if fits(found.kind):
            return True
        if found.kind in {INT, NUMBER} and isinstance(node, syntax.Literal) and wanted in _EXAMPLES:
            self.faults.append(unit_missing(node, wanted, what))
            return False
        message = f"{what} is {spoken(wanted)}, and '{phrase(node)}' is {spoken(found.kind)}"
        self.faults.append(codes.UNIT_MISMATCH.at(node.place, message, fix=f"write {_sample(wanted)}"))
        return False


_CONDITIONS = frozenset({"=", "!=", "<", "<=", ">", ">="})


def unit_missing(node: syntax.Literal, wanted: str, what: str | None = None) -> Diagnostic:
    """A bare number where a unit is needed, with what to write."""
    number = _cut(node.text)
    fix = f"write {number}{_EXAMPLES[wanted]}"
    if wanted == DURATION:
        fix = f"write {number}s, {number}min or {number}h"
    subject = f"{what} is {spoken(wanted)}, and " if what else ""
    return codes.UNIT_MISSING.at(node.place, f"{subject}{number} has no unit", fix=fix)


def _sample(kind: str) -> str:
    return {DURATION: "one such as 30s or 10min", BOOL: "`yes`, `no` or a comparison", INT: "a number"}.get(
        kind, f"{spoken(kind)}"
    )


def _cut(text: str) -> str:
    return text if len(text) <= 24 else text[:20] + "…"
