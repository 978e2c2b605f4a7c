"""What a highlighter shows: every word of the tables with its class, and the patterns that find it.

One ordered table for all editors: the Pygments lexer (`pygments_lexer`) reads it, and grammar/editors/generate.py
writes the TextMate grammar and the tree-sitter queries from it. Patterns are regular expressions that Python,
Oniguruma and JavaScript read alike.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kvpolicy import words

COMMENT, STRING, QUANTITY, KEYWORD, KIND, PROPERTY, FUNCTION, EVENT, CONSTANT, ATTRIBUTE, SERIES, LABEL, OPERATOR = (
    "comment", "string", "quantity", "keyword", "kind", "property", "function", "event", "constant", "attribute",
    "series", "label", "operator",
)  # fmt: skip

WORDS: dict[str, frozenset[str]] = {
    KEYWORD: frozenset(
        (*words.STATEMENT_WORDS, *words.CLAUSE_WORDS, *words.TEST_WORDS, *words.WORKFLOW_WORDS, "for", "language")
    ),
    KIND: frozenset((*words.SPAN_KINDS, words.ANY_KIND)),
    PROPERTY: frozenset(words.PROPERTIES),
    FUNCTION: frozenset(words.FUNCTIONS),
    EVENT: frozenset((*words.EVENTS, *words.EVENT_ALIASES)),
    CONSTANT: frozenset(
        (
            *words.VALUE_WORDS,
            *words.RETENTIONS,
            *words.LIFETIMES,
            *words.PLACES,
            *words.SHARES,
            *words.TIERS,
            *words.TIER_ALIASES,
            *words.PHASES,
            *words.STATUSES,
            "never",
            "true",
            "false",
        )
    ),
    ATTRIBUTE: frozenset((*words.ATTRIBUTES, *words.EVENT_ATTRIBUTES)),
    SERIES: frozenset(words.SERIES),
}


@dataclass(frozen=True, slots=True)
class Pattern:
    """text: a regular expression whose whole match has the class `shows`."""

    shows: str
    text: str


def any_of(names: Iterable[str]) -> str:
    """A pattern for one of these whole words, longer ones first."""
    listed = "|".join(name.replace(".", r"\.") for name in sorted(names, key=lambda n: (-len(n), n)))
    return rf"(?<![A-Za-z0-9_.])(?:{listed})(?![A-Za-z0-9_])"


_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_UNITS = "|".join(
    sorted((*words.DURATION_UNITS, *words.TOKEN_UNITS, *words.BYTE_UNITS, "%"), key=lambda unit: (-len(unit), unit))
)
_EVERYWHERE = (
    Pattern(COMMENT, r"#[^\n]*"),
    Pattern(STRING, r'"(?:[^"\\\n]|\\.)*"'),
    Pattern(QUANTITY, rf"(?<![A-Za-z0-9_])\d+(?:\.\d+)?(?:[ \t]*(?:{_UNITS})(?![A-Za-z0-9_%]))?"),
)

# First match wins. Outside brackets; `INSIDE` holds between `[` and `]`, where no word is reserved.
OUTSIDE: tuple[Pattern, ...] = (
    *_EVERYWHERE,
    Pattern(SERIES, any_of(WORDS[SERIES])),
    Pattern(PROPERTY, any_of(WORDS[PROPERTY]) + r"(?=[ \t]*:)"),
    Pattern(LABEL, rf"(?<![A-Za-z0-9_.]){_NAME}(?=[ \t]*:)"),
    Pattern(FUNCTION, any_of(WORDS[FUNCTION]) + r"(?=[ \t]*\()"),
    # `tool_result` and others are kinds, too: what follows these words is an event.
    Pattern(EVENT, r"(?:(?<=\bon )|(?<=\bat )|(?<=\buntil ))" + any_of(WORDS[EVENT])),
    Pattern(KEYWORD, any_of(WORDS[KEYWORD])),
    Pattern(KIND, any_of(WORDS[KIND])),
    Pattern(EVENT, any_of(WORDS[EVENT])),
    Pattern(CONSTANT, any_of(WORDS[CONSTANT])),
    Pattern(PROPERTY, any_of(WORDS[PROPERTY])),  # `by RULE.priority`, `of`
    Pattern(ATTRIBUTE, any_of(WORDS[ATTRIBUTE])),
    Pattern(OPERATOR, r"->|<=|>=|!=|[=<>+\-*/]"),
)
INSIDE: tuple[Pattern, ...] = (
    *_EVERYWHERE,
    Pattern(ATTRIBUTE, any_of(WORDS[ATTRIBUTE]) + r"(?=[ \t]*(?:=|!=|<|>|in(?![A-Za-z0-9_])))"),
    Pattern(KEYWORD, any_of(("in",)) + r"(?=[ \t]*\{)"),
    Pattern(CONSTANT, any_of(WORDS[CONSTANT])),
    Pattern(OPERATOR, r"<=|>=|!=|[=<>\-]"),
)
