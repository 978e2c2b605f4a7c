"""Prompts that grow piece by piece, and the block ids they have: global, prefix-chained, the full blocks only.

Made by the sessions of a workload, turned into calls by `making`. Two prompts with the same pieces have the same ids,
as an engine with global hashes would see it. Memory: the table of shared pieces, and the ids of prompts that still
grow.
"""

from __future__ import annotations

from kvpolicy.request import Span

Piece = tuple[object, int, int]  # what the tokens are, from, to
_START = 0  # stands before the first block


class Blocks:
    """Ids of blocks. Those of which all is shared are looked up, everything else is new."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._last = 0
        self._shared: dict[tuple[int, tuple[Piece, ...]], int] = {}

    def new(self, count: int) -> list[int]:
        """`count` ids that nobody has."""
        first = self._last + 1
        self._last += count
        return list(range(first, first + count))

    def of(self, before: int, pieces: tuple[Piece, ...]) -> int:
        """The id of a block of shared tokens behind `before`."""
        key = (before, pieces)
        block = self._shared.get(key)
        if block is None:
            block = self._shared[key] = self.new(1)[0]
        return block


class Prompt:
    """One prompt. spans: in order, covering all tokens; hashes: ids of its full blocks."""

    __slots__ = ("_blocks", "_open", "_own", "hashes", "spans", "tokens")

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self._open: tuple[Piece, ...] = ()  # of the block that is not full yet
        self._own = False  # something in it is nobody else's, so all that follows is too
        self.hashes: list[int] = []
        self.spans: tuple[Span, ...] = ()
        self.tokens = 0

    @property
    def block_size(self) -> int:
        """Tokens of a block."""
        return self._blocks.size

    def fork(self) -> Prompt:
        """A copy that grows on its own."""
        other = Prompt(self._blocks)
        other._open, other._own = self._open, self._own
        other.hashes, other.spans, other.tokens = list(self.hashes), self.spans, self.tokens
        return other

    def add(self, kind: str, tokens: int, text: object = None, **attributes: object) -> Prompt:
        """`tokens` more of one kind. text: what they are, where others send the same; None: nobody else's."""
        if tokens <= 0:
            return self
        last = self.spans[-1] if self.spans else None
        start = self.tokens
        if last is not None and last.kind == kind and dict(last.attributes) == attributes:
            self.spans = (*self.spans[:-1], Span(kind, last.start, start + tokens, last.attributes))
        else:
            self.spans = (*self.spans, Span(kind, start, start + tokens, attributes))
        self.tokens += tokens
        if text is None or self._own:
            self._own = True
            self._open = ()
            self.hashes += self._blocks.new(self.tokens // self._blocks.size - len(self.hashes))
        else:
            self._share(tokens, text)
        return self

    def _share(self, tokens: int, text: object) -> None:
        size, at = self._blocks.size, 0
        while at < tokens:
            room = size - (self.tokens - tokens + at) % size
            upto = min(at + room, tokens)
            self._open += ((text, at, upto),)
            if upto - at == room:
                before = self.hashes[-1] if self.hashes else _START
                self.hashes.append(self._blocks.of(before, self._open))
                self._open = ()
            at = upto
