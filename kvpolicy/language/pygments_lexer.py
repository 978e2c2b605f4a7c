"""`.kvp` for Pygments, so for Sphinx, MkDocs, terminals and notebooks: found by entry point as `kvp`.

Reads the table of `highlighting`. Needs Pygments, which whoever highlights has.
"""

from __future__ import annotations

from typing import ClassVar

from pygments.lexer import RegexLexer
from pygments.token import (
    Comment,
    Keyword,
    Name,
    Number,
    Operator,
    Punctuation,
    String,
    Text,
    Whitespace,
    _TokenType,
)

from kvpolicy.language import highlighting as shown

TOKENS: dict[str, _TokenType] = {
    shown.COMMENT: Comment.Single,
    shown.STRING: String,
    shown.QUANTITY: Number,
    shown.KEYWORD: Keyword,
    shown.KIND: Keyword.Type,
    shown.PROPERTY: Name.Property,
    shown.FUNCTION: Name.Builtin,
    shown.EVENT: Name.Class,
    shown.CONSTANT: Keyword.Constant,
    shown.ATTRIBUTE: Name.Attribute,
    shown.SERIES: Name.Builtin.Pseudo,
    shown.LABEL: Name.Label,
    shown.OPERATOR: Operator,
}


class KvpLexer(RegexLexer):  # type: ignore[misc]  # Pygments has no types
    """A lexer of policies."""

    name = "kvp"
    aliases: ClassVar[list[str]] = ["kvp", "kvpolicy"]
    filenames: ClassVar[list[str]] = ["*.kvp"]
    mimetypes: ClassVar[list[str]] = ["text/x-kvp"]

    tokens: ClassVar = {
        "root": [
            (r"\s+", Whitespace),
            *((pattern.text, TOKENS[pattern.shows]) for pattern in shown.OUTSIDE),
            (r"\[", Punctuation, "inside"),
            (r"[{}()\],.:]", Punctuation),
            (r"[A-Za-z_][A-Za-z0-9_]*", Name),
            (r".", Text),
        ],
        "inside": [
            (r"\s+", Whitespace),
            *((pattern.text, TOKENS[pattern.shows]) for pattern in shown.INSIDE),
            (r"\]", Punctuation, "#pop"),
            (r"[{},.:()\[]", Punctuation),
            (r"[A-Za-z_][A-Za-z0-9_]*", Name),
            (r".", Text),
        ],
    }
