"""The types of calls: what each function of the word tables takes and gives.

The third layer of `typer`.
"""

from __future__ import annotations

from kvpolicy import words
from kvpolicy.language import codes, syntax
from kvpolicy.language.phrase import phrase
from kvpolicy.language.spelling import nearest
from kvpolicy.language.type_operators import OperatorTyper
from kvpolicy.language.types import FAULTY, PLAIN, SILENT, Type, spoken


class CallTyper(OperatorTyper):
    """Types of calls."""

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
