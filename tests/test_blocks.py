"""Block geometry, directed and against a model that looks at every token."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvpolicy import blocks
from kvpolicy.blocks import Layout, lay_out, prefix_blocks
from kvpolicy.faults import InputFault
from kvpolicy.request import Owner, Request, Span


def request(*spans: Span, tokens: int = 80, block_size: int = 16) -> Request:
    return Request("r", Owner(), tokens, block_size, spans)


def rows(layout: Layout) -> list[tuple[int, bool, str, bool]]:
    return [(b.index, b.full, layout.spans[b.span].kind, b.straddles) for b in layout.blocks()]


def test_a_straddling_block_belongs_to_the_span_of_its_last_token() -> None:
    layout = lay_out(request(Span("system", 0, 40), Span("tools", 40, 50), Span("turn", 50, 80)))
    assert rows(layout) == [
        (0, True, "system", False),
        (1, True, "system", False),
        (2, True, "tools", True),
        (3, True, "turn", True),
        (4, True, "turn", False),
    ]
    assert [len(layout.inside(i)) for i in range(3)] == [2, 0, 1]
    assert [len(layout.owned(i)) for i in range(3)] == [2, 1, 2]
    assert [layout.prefix(i) for i in range(3)] == [2, 3, 5]


def test_a_span_that_ends_on_a_block_edge_owns_the_block() -> None:
    layout = lay_out(request(Span("system", 0, 32), Span("turn", 32, 48), tokens=48))
    assert rows(layout) == [(0, True, "system", False), (1, True, "system", False), (2, True, "turn", False)]


def test_the_partial_last_block_is_listed_and_nobodys_full_block() -> None:
    layout = lay_out(request(Span("system", 0, 40), tokens=40))
    assert rows(layout)[-1] == (2, False, "system", False)
    assert layout.full == 2
    assert list(layout.owned(0)) == [0, 1]


def test_the_partial_block_before_an_output_will_be_the_outputs() -> None:
    layout = lay_out(request(Span("system", 0, 40), Span("output", 40, None), tokens=40))
    assert rows(layout)[-1] == (2, False, "output", True)
    assert layout.prefix(1) == 2
    assert len(layout.owned(1)) == 0


def test_what_no_span_covers_is_a_turn_named_after_the_stated_ones() -> None:
    layout = lay_out(request(Span("system", 10, 32), Span("document", 48, 64)))
    assert layout.spans == (
        Span("system", 10, 32),
        Span("document", 48, 64),
        Span("turn", 0, 10),
        Span("turn", 32, 48),
        Span("turn", 64, 80),
    )
    assert layout.given == 2
    assert layout.order == (2, 0, 3, 1, 4)


def test_spans_in_another_order_are_the_same_spans() -> None:
    spans = (Span("system", 0, 40), Span("tools", 40, 50), Span("output", 80, None))
    assert lay_out(request(*spans)) == lay_out(request(*reversed(spans)))


def test_empty_spans_and_empty_requests_are_no_fault() -> None:
    layout = lay_out(request(Span("tools", 0, 0), Span("system", 0, 80)))
    assert len(layout.owned(0)) == len(layout.inside(0)) == 0
    assert lay_out(request(tokens=0)).spans == ()
    assert list(lay_out(request(Span("output", 0, None), tokens=0)).blocks()) == []


@pytest.mark.parametrize(
    ("spans", "message"),
    [
        ([Span("system", 0, 50), Span("tools", 40, 80)], "spans 0 and 1 overlap: system [0, 50) and tools [40, 80)"),
        ([Span("tools", 40, 80), Span("system", 0, 50)], "spans 0 and 1 overlap"),
        ([Span("turn", 0, 10), Span("turn", 0, 10)], "spans 0 and 1 overlap"),
        ([Span("output", 10, None), Span("turn", 20, 80)], "spans 0 and 1 overlap: output [10, …) and turn [20, 80)"),
        ([Span("system", 40, 30)], "span 0: ends at 30, before its start 40"),
        ([Span("turn", 0, 40), Span("system", 40, 81)], "span 1: reaches token 81, but the request has 80 tokens"),
        ([Span("output", 81, None)], "span 0: reaches token 81"),
        ([Span("system", 0, None)], "span 0: a system needs an end; only an output may be open"),
        ([Span("system", -1, 30)], "span 0: starts at -1; token positions count from 0"),
        ([Span("sistem", 0, 30)], "span 0: unknown kind 'sistem'; did you mean system?"),
        ([Span("any", 0, 30)], "unknown kind 'any'"),
        ([Span("turn", 40, 50), Span("sistem", 0, 30)], "span 1: unknown kind"),
    ],
)
def test_a_span_that_cannot_be_is_named(spans: list[Span], message: str) -> None:
    with pytest.raises(InputFault) as fault:
        lay_out(request(*spans))
    assert message in str(fault.value)


def test_sizes_that_cannot_be_are_named() -> None:
    with pytest.raises(InputFault, match="block_size must be at least 1, not 0"):
        lay_out(request(block_size=0))
    with pytest.raises(InputFault, match="tokens cannot be negative"):
        lay_out(request(tokens=-1))


# --- against every token --------------------------------------------------------------------------------


@st.composite
def requests(draw: st.DrawFn) -> Request:
    tokens, size = draw(st.integers(0, 60)), draw(st.integers(1, 9))
    cuts = sorted(draw(st.lists(st.integers(0, tokens), max_size=10)))
    kinds = st.sampled_from(["system", "tools", "document", "turn", "scratchpad"])
    spans = [Span(draw(kinds), a, b) for a, b in zip(cuts[::2], cuts[1::2], strict=False)]
    if draw(st.booleans()) and (not spans or spans[-1].end <= tokens):
        spans.append(Span("output", max([tokens, *cuts[-1:]]), None))
    return request(*spans, tokens=tokens, block_size=size)


@given(requests(), st.randoms())
def test_geometry_agrees_with_a_model_of_single_tokens(asked: Request, chance: object) -> None:
    layout = lay_out(asked)
    size = asked.block_size
    holder = {}  # token -> span
    for index, span in enumerate(layout.spans):
        for token in range(span.start, asked.tokens if span.end is None else span.end):
            assert token not in holder
            holder[token] = index
    assert sorted(holder) == list(range(asked.tokens))
    full = list(range(asked.tokens // size))
    by_last = {b: holder[b * size + size - 1] for b in full}
    for row in layout.blocks():
        covered = [t for t in range(row.index * size, (row.index + 1) * size) if t < asked.tokens]
        assert row.full == (len(covered) == size)
        if row.full:
            assert row.span == by_last[row.index]
            assert row.straddles == (len({holder[t] for t in covered}) > 1)
        elif layout.spans[row.span].end is not None:
            assert row.span == holder[covered[-1]]
    assert [row.index for row in layout.blocks()] == list(range(-(-asked.tokens // size)))
    for index, span in enumerate(layout.spans):
        end = asked.tokens if span.end is None else span.end
        assert list(layout.owned(index)) == [b for b in full if by_last[b] == index]
        assert list(layout.inside(index)) == [b for b in full if span.start <= b * size and (b + 1) * size <= end]
        covered_by_claim = [b for b in full if b * size + size - 1 < end]
        assert covered_by_claim == list(range(layout.prefix(index)))
        assert prefix_blocks(end, size) == layout.prefix(index)
    shuffled = list(asked.spans)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    again = lay_out(request(*shuffled, tokens=asked.tokens, block_size=size))
    assert [(s.kind, s.start, s.end) for s in again.spans if s.end != s.start] == [
        (s.kind, s.start, s.end) for s in layout.spans if s.end != s.start
    ]


@given(
    st.lists(
        st.tuples(st.sampled_from(("system", "turn", "output", "tools", "nonsense")), st.integers(-2, 4)), max_size=5
    ),
    st.integers(-1, 20),
    st.sampled_from([None, None, 0, 1, 2]),
)
def test_spans_in_a_row_are_laid_out_like_any_others(rows: list[tuple[str, int]], tokens: int, odd: int | None) -> None:
    spans, at = [], 0
    for number, (kind, length) in enumerate(rows):
        last = kind == "output" and number == len(rows) - 1
        spans.append(Span(kind, at + (number == odd), None if last else at + length))
        at += length
    asked = request(*spans, tokens=tokens if odd is None else at, block_size=2)
    with pytest.MonkeyPatch.context() as patch:
        quick = outcome(asked)
        patch.setattr(blocks, "_in_a_row", lambda *_: False)
        assert outcome(asked) == quick
    if isinstance(quick, Layout):
        ordered = [quick.spans[i] for i in quick.order]
        assert list(zip(quick.kinds, quick.ends, strict=True)) == [(span.kind, span.end) for span in ordered]
        assert [span.start for span in ordered[1:]] == [span.end for span in ordered[:-1]]
        assert quick.filled == all(span.start != span.end for span in ordered)


def outcome(asked: Request) -> Layout | str:
    try:
        return lay_out(asked)
    except InputFault as fault:
        return str(fault)
