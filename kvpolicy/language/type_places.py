"""What a place of a policy needs of the expression in it: a duration, a condition, a value that has data.

The lowest layer of `typer`, which works out the types of expressions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from kvpolicy.faults import Diagnostic
from kvpolicy.language import codes, syntax
from kvpolicy.language.phrase import phrase
from kvpolicy.language.scope import Scope
from kvpolicy.language.types import (
    BOOL,
    BYTES,
    DURATION,
    EXAMPLES,
    FAULTY,
    INT,
    NUMBER,
    PROBABILITY,
    RATIO,
    SILENT,
    Type,
    sample,
    spoken,
    unit_missing,
)


class PlaceTyper(ABC):
    """Places and what fits them. `faults` grows."""

    def __init__(self, scope: Scope, faults: list[Diagnostic]) -> None:
        self.scope = scope
        self.faults = faults

    @abstractmethod
    def infer(self, node: syntax.Expression, group: str) -> Type:
        """The type of an expression, its faults told. group: where its names are looked up."""

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
        if found.kind in {INT, NUMBER} and isinstance(node, syntax.Literal) and wanted in EXAMPLES:
            self.faults.append(unit_missing(node, wanted, what))
            return False
        message = f"{what} is {spoken(wanted)}, and '{phrase(node)}' is {spoken(found.kind)}"
        self.faults.append(codes.UNIT_MISMATCH.at(node.place, message, fix=f"write {sample(wanted)}"))
        return False
