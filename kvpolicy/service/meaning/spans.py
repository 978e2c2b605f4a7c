"""A conversation's units as spans of tokens: what a plan is made for.

Puts together what the body shows (`dialects`), what the client says (`annotations.Mark`) and where units lie
(`offsets`). A client's mark takes its tokens out of what was there; what lies at no known place is answered by
POSITION_UNKNOWN and left to the kind around it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kvpolicy.request import Span
from kvpolicy.service.meaning.annotations import END, TOKEN, TOOLS, Mark
from kvpolicy.service.meaning.dialects import Conversation, Unit
from kvpolicy.service.meaning.offsets import Places

POSITION_UNKNOWN = "POSITION_UNKNOWN"
CACHE_MARK = "cache_mark"  # the name of a span that ends at a client's own mark and has no other
MOST_SPANS = 2048


@dataclass(frozen=True, slots=True)
class Located:
    """spans: in prompt order, not overlapping, an output last where the end of the prompt is known. warned: codes to
    answer with."""

    spans: tuple[Span, ...]
    warned: tuple[str, ...] = ()


def located(conversation: Conversation, places: Places, marks: Sequence[Mark]) -> Located:
    """The spans of a request whose places are known, as far as they are."""
    rows = _of_units(conversation, places)
    warned = False
    by_index = (
        {u.index: e for u, e in zip(conversation.units, places.ends, strict=True) if u.index >= 0} if marks else {}
    )
    last = max(by_index, default=-1) + 1
    for mark in marks:
        range_ = _range(mark, conversation, places, by_index, last)
        if range_ is None:
            warned = True
        elif range_[0] < range_[1]:
            _cut(rows, Span(mark.kind, *range_, mark.attributes))
    merged = _merged(rows)[:MOST_SPANS]
    spans = tuple(merged) if places.open else (*merged, Span("output", places.total, None))
    return Located(spans, (POSITION_UNKNOWN,) if warned else ())


def _of_units(conversation: Conversation, places: Places) -> list[Span]:
    rows: list[Span] = []
    start = 0
    pending: list[Unit] = []
    for unit, end in zip(conversation.units, places.ends, strict=True):
        if unit.kind == "tools":
            continue  # where they lie is their own affair, below
        pending.append(unit)
        if end is None:
            continue
        if end > start:
            # Units whose ends are not known share a span; it is of their kind where they have one.
            kinds = {each.kind for each in pending}
            kind = pending[0].kind if len(kinds) == 1 else "turn"
            rows.append(Span(kind, start, end, _facts(pending) if len(kinds) == 1 else {}))
            start = end
        pending = []
    if start < places.total:
        rows.append(Span("turn", start, places.total))
    if places.tools is not None and places.tools[0] < places.tools[1]:
        _cut(rows, Span("tools", *places.tools))
    return rows


def _facts(units: Iterable[Unit]) -> Mapping[str, object]:
    listed = list(units)
    facts: dict[str, object] = {}
    for name in ("tool", "name"):
        values = {getattr(unit, name) for unit in listed}
        if len(values) == 1 and (value := values.pop()) is not None:
            facts[name] = value
    if listed and listed[-1].mark:  # the client's provider would cache up to here: a span of its own ends here
        facts.setdefault("name", CACHE_MARK)
    return facts


def _range(
    mark: Mark, conversation: Conversation, places: Places, by_index: Mapping[int, int | None], last: int
) -> tuple[int, int] | None:
    """A mark's tokens; None where they cannot be known. by_index: where messages end, last: how many there are."""
    if mark.part is not None:
        return None  # engines tell where messages end, not their parts
    if mark.unit == TOOLS:
        return places.tools
    if mark.unit == TOKEN:
        end = places.total if mark.end == END else min(mark.end, places.total)
        return (mark.start, end) if 0 <= mark.start < end else None
    upto = last if mark.end == END else min(mark.end, last)
    if not 0 <= mark.start < upto:
        return None
    begin = by_index.get(mark.start - 1)
    if mark.start == 0:
        heads = [e for u, e in zip(conversation.units, places.ends, strict=True) if u.index < 0 and u.kind == "system"]
        begin = heads[-1] if heads else 0
    ends = by_index.get(upto - 1)
    return None if begin is None or ends is None else (begin, ends)


def _cut(rows: list[Span], piece: Span) -> None:
    """Put `piece` in the place of what was there. rows: in prompt order, not overlapping."""
    first = bisect_right(rows, piece.start, key=_end)
    upto = bisect_left(rows, _end(piece), lo=first, key=_start)
    made = [piece]
    if first < upto:
        head, tail = rows[first], rows[upto - 1]
        if head.start < piece.start:
            made.insert(0, Span(head.kind, head.start, piece.start, head.attributes))
        if _end(tail) > _end(piece):
            made.append(Span(tail.kind, _end(piece), tail.end, tail.attributes))
    rows[first:upto] = made


def _start(span: Span) -> int:
    return span.start


def _end(span: Span) -> int:
    assert span.end is not None
    return span.end


def _merged(rows: Sequence[Span]) -> list[Span]:
    """Neighbours of one kind and one description become one span: a plan cannot tell them apart, and claims are fewer.
    Turns stay apart, as a rule may ask how many turns ago one was."""
    made: list[Span] = []
    for row in rows:
        last = made[-1] if made else None
        if (
            last is not None
            and last.end == row.start
            and row.kind == last.kind != "turn"
            and row.attributes == last.attributes
        ):
            made[-1] = Span(last.kind, last.start, row.end, last.attributes)
        else:
            made.append(row)
    return made
