"""The types of values: units that may not be mixed, values that may have no data yet, and how messages speak of them.

Read by the typers (`type_places` and those built on it) and by the passes of `check`.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvpolicy.faults import Diagnostic
from kvpolicy.language import codes, syntax

INT, NUMBER, RATIO, PROBABILITY, PERCENT = "int", "number", "ratio", "probability", "percent"
DURATION, TOKENS, BYTES, BOOL, STRING, NEVER, FAULTY = "duration", "tokens", "bytes", "bool", "string", "never", "?"
PLAIN = frozenset({INT, NUMBER, RATIO, PROBABILITY})
PARTS = frozenset({PERCENT, PROBABILITY, RATIO})
_SPOKEN = {
    INT: "a count", NUMBER: "a number", RATIO: "a ratio", PROBABILITY: "a probability", PERCENT: "a percentage",
    DURATION: "a duration", TOKENS: "a token count", BYTES: "a size in bytes", BOOL: "a condition",
    STRING: "a text", NEVER: "`never`",
}  # fmt: skip
EXAMPLES = {DURATION: "s", TOKENS: "k", BYTES: "MiB", PERCENT: "%", PROBABILITY: "%"}


@dataclass(frozen=True, slots=True)
class Type:
    """A kind of value; `maybe`: there may be no data yet."""

    kind: str
    maybe: bool = False


SILENT = Type(FAULTY)


def spoken(kind: str) -> str:
    """A kind in words."""
    return _SPOKEN.get(kind, kind)


def unit_missing(node: syntax.Literal, wanted: str, what: str | None = None) -> Diagnostic:
    """A bare number where a unit is needed, with what to write."""
    number = cut(node.text)
    fix = f"write {number}{EXAMPLES[wanted]}"
    if wanted == DURATION:
        fix = f"write {number}s, {number}min or {number}h"
    subject = f"{what} is {spoken(wanted)}, and " if what else ""
    return codes.UNIT_MISSING.at(node.place, f"{subject}{number} has no unit", fix=fix)


def sample(kind: str) -> str:
    """What a value of a kind may look like."""
    return {DURATION: "one such as 30s or 10min", BOOL: "`yes`, `no` or a comparison", INT: "a number"}.get(
        kind, f"{spoken(kind)}"
    )


def cut(text: str) -> str:
    """A number as written, no longer than fits a message."""
    return text if len(text) <= 24 else text[:20] + "…"
