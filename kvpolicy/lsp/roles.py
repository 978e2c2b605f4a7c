"""What a word of a text is: a kind, a property, the name of a rule. `reader` finds out, everything else asks.

An `Occurrence` is a word in its role; a `Wanted` is what could be written where the cursor is.
"""

from __future__ import annotations

from dataclasses import dataclass

# Words of the tables.
STATEMENT, CLAUSE, KIND, ATTRIBUTE, PROPERTY, EVENT, FUNCTION, SERIES, TIER, CONSTANT, QUANTITY = (
    "statement", "clause", "kind", "attribute", "property", "event", "function", "series", "tier", "constant",
    "quantity",
)  # fmt: skip
# Names that authors give, where they are given and where they are used.
RULE, LET, LAYER, WORKFLOW, NODE, USED, POLICY, VALUE, TEST = (
    "rule", "let", "layer", "workflow", "node", "used", "policy", "value", "test"
)  # fmt: skip
NAMES = frozenset({RULE, LET, LAYER, WORKFLOW, NODE, USED, POLICY})


@dataclass(frozen=True, slots=True)
class Occurrence:
    """`start` to `end` in the text. `name`: as meant, without quotes. `path`: all parts of a dotted name up to this
    one. `gives`: whether the name is defined here. `of`: of a value its attribute or property, of a setting the used
    policy, of a node its workflow. `whole`: the end of the statement that a definition begins."""

    role: str
    name: str
    start: int
    end: int
    path: tuple[str, ...] = ()
    gives: bool = False
    of: str = ""
    whole: int = 0


@dataclass(frozen=True, slots=True)
class Wanted:
    """A role that may stand at the cursor. `of`: as in Occurrence; `before`: the parts of a dotted name in front."""

    role: str
    of: str = ""
    before: tuple[str, ...] = ()
