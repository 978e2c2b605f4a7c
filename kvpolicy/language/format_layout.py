"""Blocks laid out: what stands on one line, what stands on several, where empty lines and comments go.

Takes the `Source` that `format_tree` reads, gives lines. A block of properties stands on one line where it fits;
`layer`, `test` and `workflow` never do. Empty lines are the author's, one at most, but those three stand apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lark import Token, Tree

from kvpolicy.language.format_flow import STEP, WIDTH, Piece, commented, line_of, lines_of, pieces
from kvpolicy.language.format_tree import Gap, Node, Source, tokens

_APART = frozenset({"layer", "test", "workflow"})
_SETS = frozenset({"rule", "limit", "expect"})  # blocks of properties
_MEMBERS = frozenset({"rule", "on", "decl", "bound", "expected", "given", "assume", "at", "then", "expect"})
_MEMBERS_OF_WORKFLOW = frozenset({"nodes", "chain", "loop"})


class Layout:
    """Lays out one source."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def file(self) -> list[str]:
        """The lines of the whole text."""
        statements = [item.children[0] for item in self.source.tree.children if isinstance(item, Tree)]
        return self._sequence([s for s in statements if isinstance(s, Tree)], 0, self.source.last, [])

    # --- statements one below the other -----------------------------------------------------------------

    def _sequence(self, nodes: Sequence[Node], indent: int, last: Gap, lines: list[str], pad: int = 0) -> list[str]:
        """Parts one below the other, behind `lines`, with what stands between them and, in `last`, behind them."""
        begin = len(lines)
        for index, node in enumerate(nodes):
            apart = index > 0 and bool({node.data, nodes[index - 1].data} & _APART)
            self._between(self.source.gap(tokens(node)[0]), indent, lines, begin, apart)
            lines += self._part(node, indent, pad)
        self._between(Gap(last.comments), indent, lines, begin, False)
        return lines

    def _between(self, gap: Gap, indent: int, lines: list[str], begin: int, apart: bool) -> None:
        """Comments and the empty line in front of a part. begin: where the block's own lines start."""
        for comment in gap.comments:
            if not comment.own_line and lines:
                lines[-1] += f"  {comment.text}"
                continue
            if (comment.apart or apart) and len(lines) > begin:
                lines.append("")
            apart = False
            lines.append(" " * indent + comment.text)
        if (gap.apart or apart) and len(lines) > begin:
            lines.append("")

    def _part(self, node: Node, indent: int, pad: int) -> list[str]:
        data = str(node.data)
        lay_out: Callable[[Node, int], list[str]] | None = {
            "layer": self._block, "test": self._block, "workflow": self._block, "on": self._on,
        }.get(data)  # fmt: skip
        if lay_out is not None:
            return lay_out(node, indent)
        if data in _SETS:
            line = self._on_one_line(node, indent)
            return self._block(node, indent) if line is None else [" " * indent + line]
        if pad and data in {"decl", "bound", "expected"}:
            return self._declaration(node, indent, pad)
        return lines_of(pieces(self.source, [node]), indent)

    # --- blocks -----------------------------------------------------------------------------------------

    def _split(self, node: Node) -> tuple[list[Node | Token | None], list[Node], Token]:
        """A block's head with its `{`, its members, and its `}`."""
        at = next(i for i, c in enumerate(node.children) if isinstance(c, Token) and c.type == "LBRACE")
        members = [child for child in node.children[at + 1 :] if isinstance(child, Tree)]
        end = node.children[-1]
        assert isinstance(end, Token)
        return list(node.children[: at + 1]), members, end

    def _block(self, node: Node, indent: int) -> list[str]:
        head, members, end = self._split(node)
        lines = lines_of(pieces(self.source, head), indent)
        last = self.source.gap(end)
        if not members and not last.comments:
            lines[-1] += " }"
            return lines
        sets = [m for m in members if m.data in {"decl", "bound", "expected"}]
        pad = max((len(str(m.children[0])) + 2 for m in sets), default=0)
        self._sequence(members, indent + STEP, last, lines, pad)
        return [*lines, " " * indent + "}"]

    def _on(self, node: Node, indent: int) -> list[str]:
        """`on … { … }` around a single rule stands on one line where it fits."""
        head, members, end = self._split(node)
        row = pieces(self.source, head)
        if len(members) == 1 and not commented(row) and not self._comments(members[0]) and not self._comments(end):
            inner = self._on_one_line(members[0], indent)
            line = None if inner is None else f"{line_of(row)} {inner} }}"
            if line is not None and indent + len(line) <= WIDTH:
                return [" " * indent + line]
        return self._block(node, indent)

    def _on_one_line(self, node: Node, indent: int) -> str | None:
        """A block of properties on one line; None where it is too long or holds comments."""
        head, members, _ = self._split(node)
        if any(self.source.gap(token).comments for token in tokens(node)[1:]):
            return None
        rows = [line_of(pieces(self.source, [member])) for member in members]
        line = " ".join((line_of(pieces(self.source, head)), *(["  ".join(rows)] if rows else []), "}"))
        return line if indent + len(line) <= WIDTH else None

    def _comments(self, part: Node | Token) -> bool:
        return bool(self.source.gap(tokens(part)[0]).comments)

    def _declaration(self, node: Node, indent: int, pad: int) -> list[str]:
        """`priority:  60`, the values of a block below each other."""
        name, colon, *value = node.children
        assert isinstance(name, Token)
        assert isinstance(colon, Token)
        row: list[Piece] = pieces(self.source, value)
        if row[0].comments or self.source.gap(colon).comments:
            return lines_of(pieces(self.source, [node]), indent)
        return lines_of(row, indent, f"{name}:".ljust(pad))
