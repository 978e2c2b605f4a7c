"""kvp.lark as a tree-sitter grammar, rule by rule, and the queries that colour its tree.

Called by `generate`. The translation knows the forms that kvp.lark uses: alternatives, groups, optional parts,
repetition, names. What only lark has (aliases, lookahead in terminals, inlining marks) is left out or said with
tree-sitter's own means: reserved words by keyword extraction from `identifier`.
"""

from __future__ import annotations

import json
import re

from kvpolicy import words
from kvpolicy.language import highlighting as shown

_TOKEN = re.compile(r"[a-z_]+|[A-Z_]+|[()\[\]|*+]")
_IDENTIFIER = {"NAME", "WORD"}
_PATTERNS = {
    "STRING": r'/"([^"\\\n]|\\.)*"/',
    "QUANTITY": r"/\d+(\.\d+)?([A-Za-z_%][A-Za-z0-9_%]*|[ \t]+(ms|s|min|m|h|d|k|M|Ki|Mi|KiB|MiB|GiB|TiB|%))?/",
    "INT": r"/\d+/",
    "REL": 'choice("<=", ">=", "!=", "<", ">")',
}
_PRECEDENCE = {"QUANTITY": 1}  # INT stands where QUANTITY cannot


def rules_of(lark: str) -> dict[str, str]:
    """Name -> right-hand side of every rule (not terminal) of kvp.lark, comments and aliases left out."""
    text = re.sub(r"^\s*//.*$|\s//.*$", "", lark, flags=re.MULTILINE)
    text = re.sub(r"->\s*[a-z_]+", "", text)
    found: dict[str, str] = {}
    for match in re.finditer(r"^\??([a-z_]+)\s*:(.*?)(?=^\??[A-Za-z_]+(?:\.\d+)?\s*:|^%|\Z)", text, re.M | re.S):
        found[match[1]] = " ".join(match[2].split())
    return found


def literals_of(lark: str) -> dict[str, str]:
    """Name -> text of the terminals that are one string."""
    found = dict(re.findall(r'^([A-Z_]+)(?:\.\d+)?:\s*"((?:[^"\\]|\\.)*)"\s*$', lark, re.M))
    return {**found, "WITHIN": "within", "LANGUAGE": "language", "NESTED": "workflow"}


class _Rule:
    """Reads one right-hand side: alternatives of sequences of items with `*` or `+` behind them."""

    def __init__(self, text: str, literals: dict[str, str]) -> None:
        self._tokens = _TOKEN.findall(text)
        self._literals = literals
        self._at = 0

    def all(self) -> str:
        """The whole of it as a tree-sitter expression."""
        made = self._alternatives()
        if self._at < len(self._tokens):
            raise ValueError(f"kvp.lark has a form that is not translated: {self._tokens[self._at :]}")
        return made

    def _alternatives(self) -> str:
        options = [self._sequence()]
        while self._peek() == "|":
            self._at += 1
            options.append(self._sequence())
        return options[0] if len(options) == 1 else f"choice({', '.join(options)})"

    def _sequence(self) -> str:
        items = []
        while self._peek() not in (None, "|", ")", "]"):
            items.append(self._item())
        return items[0] if len(items) == 1 else f"seq({', '.join(items)})"

    def _item(self) -> str:
        token = self._tokens[self._at]
        self._at += 1
        if token in ("(", "["):
            inner = self._alternatives()
            self._at += 1
            made = inner if token == "(" else f"optional({inner})"
        elif token in _IDENTIFIER:
            made = "$.identifier"
        elif token == "LABEL":
            made = "$.string"
        elif token in _PATTERNS:
            made = f"$.{token.lower()}"
        elif token.isupper():
            made = json.dumps(self._literals[token])
        else:
            made = f"$.{token}"
        if self._peek() in ("*", "+"):
            made = f"{'repeat' if self._peek() == '*' else 'repeat1'}({made})"
            self._at += 1
        return made

    def _peek(self) -> str | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None


def grammar(lark: str) -> str:
    """The text of grammar.js."""
    rules, literals = rules_of(lark), literals_of(lark)
    lines = [
        "// Made by grammar/editors/generate.py from grammar/kvp.lark.",
        "module.exports = grammar({",
        '  name: "kvp",',
        "  extras: $ => [/[ \\t\\r\\n]+/, $.comment],",
        "  word: $ => $.identifier,",
        "  rules: {",
    ]
    lines += [f"    {name}: $ => {_Rule(text, literals).all()}," for name, text in rules.items()]
    lines.append("    identifier: $ => /[A-Za-z_][A-Za-z0-9_]*/,")
    for name, pattern in _PATTERNS.items():
        body = f"token(prec({_PRECEDENCE[name]}, {pattern}))" if name in _PRECEDENCE else pattern
        lines.append(f"    {name.lower()}: $ => {body},")
    lines += ["    comment: $ => token(/#[^\\n]*/),", "  },", "});"]
    return "\n".join(lines) + "\n"


def highlights() -> str:
    """The text of queries/highlights.scm: by place in the tree first, by word where the place does not tell."""
    sets = (
        ("@type", shown.WORDS[shown.KIND]),
        ("@function.builtin", shown.WORDS[shown.FUNCTION]),
        ("@constant.builtin", shown.WORDS[shown.CONSTANT]),
        ("@type.definition", shown.WORDS[shown.EVENT]),
        ("@property", shown.WORDS[shown.PROPERTY]),
    )
    keywords = sorted({*words.STATEMENT_WORDS, *words.CLAUSE_WORDS, *words.TEST_WORDS, *words.WORKFLOW_WORDS})
    lines = [
        "; Made by grammar/editors/generate.py from kvpolicy/words.py.",
        "(comment) @comment",
        "(string) @string",
        "[(quantity) (int)] @number",
        f"[{' '.join(json.dumps(word) for word in keywords)}] @keyword",
        "(label (identifier) @label)",
        "(attr . (identifier) @attribute)",
        "(call . (identifier) @function)",
        "(decl . (identifier) @property)",
    ]
    for capture, listed in sets:
        names = " ".join(json.dumps(name) for name in sorted(listed))
        lines.append(f"((identifier) {capture} (#any-of? {capture} {names}))")
    return "\n".join(lines) + "\n"
