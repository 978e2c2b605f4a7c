"""The types of operators: units are not mixed, `else` ends doubt, a ratio of like units has none.

The second layer of `typer`.
"""

from __future__ import annotations

from kvpolicy import words
from kvpolicy.language import codes, syntax
from kvpolicy.language.phrase import phrase
from kvpolicy.language.type_places import PlaceTyper
from kvpolicy.language.types import (
    BOOL,
    DURATION,
    EXAMPLES,
    FAULTY,
    INT,
    NEVER,
    NUMBER,
    PARTS,
    PERCENT,
    PLAIN,
    PROBABILITY,
    RATIO,
    SILENT,
    STRING,
    Type,
    spoken,
    unit_missing,
)

_CONDITIONS = frozenset({"=", "!=", "<", "<=", ">", ">="})


class OperatorTyper(PlaceTyper):
    """Types of unary and binary expressions."""

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
        if node.operator in _CONDITIONS and isinstance(node.left, syntax.Name) and self._attribute(node.left, group):
            said = f"'{node.left.path[0]}' is said of a span, in brackets behind it: `turn[{phrase(node)}]`"
            message = f"'{node.left.path[0]}' is not defined"
            self.faults.append(codes.UNKNOWN_NAME.at(node.left.place, message, fix=said))
            return Type(BOOL)
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

    def _attribute(self, name: syntax.Name, group: str) -> bool:
        """Whether a name that nothing defines is an attribute's."""
        return (
            name.path[0] in words.ATTRIBUTES and len(name.path) == 1 and self.scope.find_let(name.path, group) is None
        )

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
            if kind in {INT, NUMBER} and isinstance(side, syntax.Literal) and other in EXAMPLES:
                self.faults.append(unit_missing(side, other))
                return SILENT
        link = "instead of" if by == "else" else "beside"
        message = f"'{phrase(second)}' is {spoken(right.kind)} {link} {spoken(left.kind)}: units are not mixed"
        return self._mismatch(second, message)

    def _mismatch(self, node: syntax.Expression, message: str) -> Type:
        self.faults.append(codes.UNIT_MISMATCH.at(node.place, message))
        return SILENT
