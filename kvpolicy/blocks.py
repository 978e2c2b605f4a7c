"""Block geometry: which span a block belongs to, and how many full blocks a span's claim covers.

Reads a `Request`; `plan` and `claims` read the `Layout`. A block is reused only when its LAST token is reproduced,
so a block belongs to the span that holds its last token: one that straddles two spans belongs to the later one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from itertools import pairwise

from kvpolicy import words
from kvpolicy.faults import InputFault
from kvpolicy.request import Request, Span


@dataclass(frozen=True, slots=True)
class Block:
    """One block of a prompt. `full`: all its tokens are there; only full blocks have a hash and can be claimed.

    span: index of the owning span (for the partial last block: the span its last token will lie in).
    straddles: it holds tokens of an earlier span, too.
    """

    index: int
    full: bool
    span: int
    straddles: bool


@dataclass(frozen=True, slots=True)
class Layout:
    """A request's spans, together covering every token of the prompt.

    spans: the stated ones in prompt order, then the stretches that none covers, as `turn`; an index into it names a
    span everywhere. given: how many were stated. order: the indices in prompt order; kinds, ends: the kind of each in
    that order, and the token before which it ends, which is where the next one starts (None: an open output). tokens,
    block_size: in tokens.
    """

    tokens: int
    block_size: int
    spans: tuple[Span, ...]
    given: int
    order: tuple[int, ...]
    kinds: tuple[str, ...]
    ends: tuple[int | None, ...]

    @property
    def as_stated(self) -> bool:
        """Whether the spans were stated in prompt order and cover it: the place of a span is its index."""
        return self.order is _as_stated(len(self.spans))

    @property
    def filled(self) -> bool:
        """Whether every span holds tokens, or may come to."""
        return 0 not in self.ends and len(set(self.ends)) == len(self.ends)

    @property
    def full(self) -> int:
        """Full blocks of the prompt."""
        return self.tokens // self.block_size

    def end(self, span: int) -> int:
        """Where a span ends within the prompt, in tokens; an output still being generated ends with the prompt."""
        end = self.spans[span].end
        return self.tokens if end is None else end

    def prefix(self, span: int) -> int:
        """Length, in full blocks, of the prefix that the span's claim covers: from block 0 to the span's last."""
        return self.end(span) // self.block_size

    def owned(self, span: int) -> range:
        """The full blocks whose last token lies in the span."""
        return range(self.spans[span].start // self.block_size, self.end(span) // self.block_size)

    def inside(self, span: int) -> range:
        """The full blocks that lie wholly within the span."""
        first = -(-self.spans[span].start // self.block_size)
        return range(first, max(first, self.end(span) // self.block_size))

    def blocks(self) -> Iterator[Block]:
        """Every block of the prompt, the partial last one included."""
        size, index = self.block_size, 0
        for span in self.order:
            start, end = self.spans[span].start, self.end(span)
            while (index + 1) * size <= end:
                yield Block(index, True, span, index * size < start)
                index += 1
        if index * size < self.tokens:
            last = self._last_token_span(index)
            yield Block(index, False, last, index * size < self.spans[last].start)

    def _last_token_span(self, index: int) -> int:
        """The span in which the last token of the partial block lies, or will lie once it is generated."""
        last = self.order[-1]
        if self.spans[last].end is None:
            return last
        return next(i for i in reversed(self.order) if self.spans[i].start < self.tokens and self.end(i) == self.tokens)


def lay_out(request: Request) -> Layout:
    """Check a request's spans and complete them, so that every token of the prompt lies in one.

    Raises InputFault naming the span: unknown kind, end before start, beyond the prompt, an overlap, an open end that
    is not an output's; and for a block size below 1 or a negative token count.
    """
    tokens, spans = request.tokens, request.spans
    if request.block_size < 1:
        raise InputFault(f"block_size must be at least 1, not {request.block_size}")
    if tokens < 0:
        raise InputFault(f"tokens cannot be negative: {tokens}")
    kinds, ends = tuple([span.kind for span in spans]), tuple([span.end for span in spans])
    if words.SPAN_KINDS.keys() >= set(kinds) and _in_a_row([span.start for span in spans], ends, kinds, tokens):
        return Layout(tokens, request.block_size, spans, len(spans), _as_stated(len(spans)), kinds, ends)
    place, ordered = 0, True
    for span in spans:
        start, end = span.start, span.end
        if start < place:
            ordered = False
            break
        if span.kind not in words.SPAN_KINDS or (end is not None and not start <= end <= tokens):
            raise _fault(spans.index(span), span, tokens)
        if end is None:
            if span.kind != "output" or start > tokens:
                raise _fault(spans.index(span), span, tokens)
            end = tokens if span is spans[-1] else tokens + 1  # nothing can follow an open end
        place = end
    return _with_turns(request, spans) if ordered else _in_order(request)


def _in_a_row(starts: list[int], ends: tuple[int | None, ...], kinds: tuple[str, ...], tokens: int) -> bool:
    """Whether spans that start and end there follow one another and cover a prompt, which most do."""
    if not starts or starts[0] != 0 or starts[1:] != list(ends[:-1]) or starts != sorted(starts):
        return False
    last = ends[-1]
    return starts[-1] <= tokens and (last == tokens or (last is None and kinds[-1] == "output"))


@lru_cache(maxsize=1024)
def _as_stated(count: int) -> tuple[int, ...]:
    """The order of so many spans that were stated in it: one object for all such layouts, which are kept while their
    requests may be planned again."""
    return tuple(range(count))


def prefix_blocks(end: int, block_size: int) -> int:
    """Full blocks whose last token lies before token `end`."""
    return end // block_size


def _in_order(request: Request) -> Layout:
    """Spans stated in another order mean the same; an overlap is a fault."""
    spans = request.spans
    for index, span in enumerate(spans):
        if _wrong(span, request.tokens):
            raise _fault(index, span, request.tokens)
    ordered = tuple(sorted(spans, key=lambda s: (s.start, s.end is None, s.end or 0)))
    for one, two in pairwise(ordered):
        if one.end is None or two.start < one.end:
            first, second = sorted((spans.index(one), spans.index(two)))
            if first == second:
                second = spans.index(one, first + 1)
            raise InputFault(
                f"spans {first} and {second} overlap: {_range(spans[first])} and {_range(spans[second])}; "
                "a token belongs to one span"
            )
    return _with_turns(request, ordered)


def _with_turns(request: Request, spans: tuple[Span, ...]) -> Layout:
    """What no span covers is a turn."""
    place = 0
    turns: list[Span] = []
    order: list[int] = []
    for index, span in enumerate(spans):
        if span.start > place:
            order.append(len(spans) + len(turns))
            turns.append(Span("turn", place, span.start))
        order.append(index)
        place = request.tokens if span.end is None else span.end
    if place < request.tokens:
        order.append(len(spans) + len(turns))
        turns.append(Span("turn", place, request.tokens))
    whole = (*spans, *turns)
    ranked = tuple(order) if turns else _as_stated(len(spans))
    kinds, ends = tuple([whole[i].kind for i in ranked]), tuple([whole[i].end for i in ranked])
    return Layout(request.tokens, request.block_size, whole, len(spans), ranked, kinds, ends)


def _wrong(span: Span, tokens: int) -> bool:
    if span.kind not in words.SPAN_KINDS or span.start < 0 or span.start > tokens:
        return True
    return span.kind != "output" if span.end is None else not span.start <= span.end <= tokens


def _fault(index: int, span: Span, tokens: int) -> InputFault:
    """What is wrong with one span, and the mend."""
    if span.kind not in words.SPAN_KINDS:
        near = get_close_matches(span.kind, words.SPAN_KINDS, n=1)
        mend = f"did you mean {near[0]}?" if near else f"the kinds are {', '.join(words.SPAN_KINDS)}"
        return InputFault(f"span {index}: unknown kind {span.kind!r}; {mend}")
    if span.start < 0:
        return InputFault(f"span {index}: starts at {span.start}; token positions count from 0")
    if span.end is None and span.kind != "output":
        return InputFault(f"span {index}: a {span.kind} needs an end; only an output may be open")
    if span.end is not None and span.end < span.start:
        return InputFault(f"span {index}: ends at {span.end}, before its start {span.start}")
    beyond = span.start if span.end is None else max(span.start, span.end)
    return InputFault(f"span {index}: reaches token {beyond}, but the request has {tokens} tokens")


def _range(span: Span) -> str:
    return f"{span.kind} [{span.start}, {'…' if span.end is None else span.end})"
