"""Spans of traces that carry no text: told from sizes, input types and the growth from call to call.

The first `tool_tokens` are tool definitions, the next `system_tokens` the system prompt. What a call has beyond the
previous call of its chain (owner, model, first block) is `tool_result` or `turn`, as its input types say; what was
there before keeps its kind. Where the history was rewritten, everything behind the first block that differs is new.
Read by the trace readers; memory: the hash list and the spans of the latest call of each of the `CHAINS` latest chains.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from kvpolicy.request import Owner, Span
from kvpolicy.simulate.trace import BlockId

CHAINS = 4096
_ChainKey = tuple[Owner, str | None, BlockId]


@dataclass(slots=True)
class _Chain:
    hashes: Sequence[BlockId] = ()
    tokens: int = 0
    spans: list[Span] = field(default_factory=list)
    turns: int = 0


class SpanBook:
    """The latest call of every chain, so that the next one's growth can be told."""

    def __init__(self) -> None:
        self._chains: OrderedDict[_ChainKey, _Chain] = OrderedDict()

    def spans(
        self,
        owner: Owner,
        model: str | None,
        hashes: Sequence[BlockId],
        tokens: int,
        block_size: int,
        tools: int,
        system: int,
        input_types: Sequence[str],
    ) -> tuple[tuple[Span, ...], int]:
        """(spans in prompt order covering all `tokens`, turns of a human so far) of one call. tools, system: tokens."""
        if not hashes:
            return ((Span("turn", 0, tokens),) if tokens else ()), 0
        chain = self._chain((owner, model, hashes[0]))
        returned = "tool_result" in input_types
        if not chain.spans:
            spans, grown = _head(tools, system, tokens), "turn"
        else:
            kept = min(_kept_tokens(chain, hashes, block_size), tokens)
            grown = "tool_result" if returned and tokens > chain.tokens else "turn"
            # Other tools or another system prompt are still what the head of the prompt is.
            spans = _cut(chain.spans, kept) if kept >= tools + system else _head(tools, system, tokens)
        _append(spans, grown, tokens)
        chain.turns += not returned
        chain.hashes, chain.tokens, chain.spans = hashes, tokens, spans
        return tuple(spans), chain.turns

    def _chain(self, key: _ChainKey) -> _Chain:
        chain = self._chains.get(key)
        if chain is None:
            chain = self._chains[key] = _Chain()
            if len(self._chains) > CHAINS:
                self._chains.popitem(False)
        else:
            self._chains.move_to_end(key)
        return chain


def _head(tools: int, system: int, tokens: int) -> list[Span]:
    """Tools and system of a chain's first call. A shorter prompt cannot carry them: it is another kind of call."""
    if tokens < tools + system:
        return []
    spans = []
    if tools:
        spans.append(Span("tools", 0, tools))
    if system:
        spans.append(Span("system", tools, tools + system))
    return spans


def _kept_tokens(chain: _Chain, hashes: Sequence[BlockId], block_size: int) -> int:
    """Tokens of the chain's latest prompt that this one reproduces, as far as blocks can tell."""
    last = chain.hashes
    low, high = 0, min(len(last), len(hashes))
    while low < high:  # an id tells its whole prefix, so agreement ends once and for all
        middle = (low + high + 1) // 2
        if last[middle - 1] == hashes[middle - 1]:
            low = middle
        else:
            high = middle - 1
    # The last block may differ only because more text filled it.
    return chain.tokens if low >= len(last) - 1 else low * block_size


def _cut(spans: list[Span], tokens: int) -> list[Span]:
    kept = [span for span in spans if span.end is not None and span.end <= tokens]
    start = (kept[-1].end or 0) if kept else 0
    if start < tokens:
        kept.append(Span(spans[len(kept)].kind, start, tokens))
    return kept


def _append(spans: list[Span], kind: str, end: int) -> None:
    start = (spans[-1].end or 0) if spans else 0
    if start >= end:
        return
    if spans and spans[-1].kind == kind:
        spans[-1] = Span(kind, spans[-1].start, end)
    else:
        spans.append(Span(kind, start, end))
