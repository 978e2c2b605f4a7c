"""A text as the formatter sees it: the grammar's tree with every token, and the comments between them.

`format` reads it. The tree of `syntax` would not do: it has no parentheses, no comments and no order among statements
of different kinds. Same grammar, so what `parse` accepts, this reads.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from threading import Lock

from lark import Lark, Token, Tree

from kvpolicy import words
from kvpolicy.language.grammar import cache_file, grammar_text

_GAP = re.compile(r"#[^\n]*|\n")
_MINUTES = re.compile(r"(\d+(?:\.\d+)?)[ \t]*m")
_BLANK_UNIT = re.compile(r"[ \t]+")
_LOCK = Lock()

Node = Tree[Token]


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment with its `#`. own_line: whether nothing stands before it on its line; apart: whether an empty line
    does."""

    text: str
    own_line: bool
    apart: bool


@dataclass(frozen=True, slots=True)
class Gap:
    """What stands between two tokens. apart: whether the later one follows an empty line."""

    comments: tuple[Comment, ...] = ()
    apart: bool = False


@dataclass(slots=True)
class Source:
    """`before`: per token, by where it starts, what stands in front of it. `last`: what stands behind the last one.
    `written`: per token the text it gets where that is not its own."""

    tree: Node
    before: dict[int, Gap]
    last: Gap
    written: dict[int, str] = field(default_factory=dict)

    def gap(self, token: Token) -> Gap:
        """What stands in front of a token."""
        return self.before[token.start_pos or 0]

    def text(self, token: Token) -> str:
        """How a token is written."""
        return self.written.get(token.start_pos or 0, str(token))


def read(text: str) -> Source:
    """The tree of a text that parses without a fault. Raises lark's UnexpectedInput on any other."""
    with _LOCK:
        tree: Node = _reader().parse(text)
    before: dict[int, Gap] = {}
    end = 0
    for token in tokens(tree):
        start = token.start_pos or 0
        before[start] = _gap(text[end:start], first=end == 0)
        end = token.end_pos or start
    source = Source(tree, before, _gap(text[end:], first=end == 0))
    _canonical(tree, source.written)
    return source


def tokens(node: Node | Token | None) -> list[Token]:
    """All tokens of a part, in order."""
    found: list[Token] = []
    waiting: list[Node | Token | None] = [node]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Token):
            found.append(part)
        elif part is not None:
            waiting += reversed(part.children)
    return found


def shape(source: Source) -> list[tuple[str, str]]:
    """What a text says, layout and comments aside: its tokens, as they are to be written, in the brackets of the
    tree."""
    found: list[tuple[str, str]] = []
    waiting: list[Node | Token | str | None] = [source.tree]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Token):
            found.append((part.type, source.text(part)))
        elif isinstance(part, Tree):
            found.append(("(", str(part.data)))
            waiting.append(")")
            waiting += reversed(part.children)
        elif part is not None:
            found.append((part, ""))
    return found


def comments(source: Source) -> list[str]:
    """The text of every comment, in order."""
    gaps = [source.gap(token) for token in tokens(source.tree)]
    return [comment.text for gap in (*gaps, source.last) for comment in gap.comments]


@cache
def _reader() -> Lark:
    path = cache_file("tree")
    return Lark(
        grammar_text(),
        parser="lalr",
        lexer="contextual",
        maybe_placeholders=True,
        cache=str(path) if path else False,
    )


def _gap(text: str, *, first: bool) -> Gap:
    found: list[Comment] = []
    lines = 1 if first else 0
    for piece in _GAP.finditer(text):
        if piece.group() == "\n":
            lines += 1
        else:
            found.append(Comment(piece.group().rstrip(), lines > 0, lines > 1 and not (first and not found)))
            lines = 0
    return Gap(tuple(found), lines > 1 and not (first and not found))


# --- words with two spellings ---------------------------------------------------------------------------


def _canonical(tree: Node, written: dict[int, str]) -> None:
    """Units written at once and `m` as `min`; tiers by their first name. Values in brackets stay as they are: a tool
    may well be called `5m`."""
    for node in tree.iter_subtrees():
        for child in node.children:
            if isinstance(child, Token) and child.type == "QUANTITY" and node.data != "value":
                minutes = _MINUTES.fullmatch(child)
                plain = f"{minutes[1]}min" if minutes else _BLANK_UNIT.sub("", child)
                _write(child, plain, written)
        if node.data in {"decl", "expected"} and str(node.children[0]) == "tier":
            for rung in _rungs(node.children[2]):
                _tier(rung, written)
        elif node.data == "bound":
            _tier(node.children[0], written)
            _tier(node.children[-1], written)
        elif node.data == "call" and str(node.children[0]) == "pressure" and len(node.children) == 4:
            _tier(node.children[2], written)


def _rungs(value: Node | Token | None) -> list[Node | Token | None]:
    if not isinstance(value, Tree):
        return []
    if value.data == "ladder":
        return [child.children[0] for child in value.children if isinstance(child, Tree)]
    return [value.children[0]] if value.data == "lone_rung" else [value]


def _tier(part: Node | Token | None, written: dict[int, str]) -> None:
    if isinstance(part, Tree):
        part = part.children[0] if part.data == "dotted" and len(part.children) == 1 else None
    if isinstance(part, Token):
        _write(part, words.TIER_ALIASES.get(str(part), str(part)), written)


def _write(token: Token, text: str, written: dict[int, str]) -> None:
    if text != token:
        written[token.start_pos or 0] = text
