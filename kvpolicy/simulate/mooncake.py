"""The Mooncake form: `timestamp` (ms), `input_length`, `output_length`, `hash_ids`, 512-token prefix blocks.

Optional per row: `block_size`, `session_id`, `agent`, `model`, `stop`, `tool_tokens`, `system_tokens`, `input_types`,
`output_types`, `api_time`, `think_time` (the pause before the call, s), and in the first row `time_unit`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kvpolicy.faults import InputFault
from kvpolicy.request import Request
from kvpolicy.simulate import fields
from kvpolicy.simulate.clock import Clock
from kvpolicy.simulate.fields import Row
from kvpolicy.simulate.gather import Gather
from kvpolicy.simulate.spans import SpanBook
from kvpolicy.simulate.trace import NO_ANSWER, TOOL_USE, Answer, Call, Facts, owner_of

BLOCK_SIZE = 512
_SOME_PAUSES = 8  # sessions' own pauses compared before the unit is doubted


def fits(row: Row) -> bool:
    """Is this the first row of such a trace?"""
    return "hash_ids" in row and "input_length" in row and "chat_id" not in row


def calls(path: Path, rows: Iterator[tuple[int, Row]], first: tuple[int, Row], facts: Facts) -> Iterator[Call]:
    """The trace's calls in file order."""
    clock = Clock(path, *first, unit="ms", key="timestamp")
    gather = Gather(path, facts, clock.unit, clock.stated)
    book = SpanBook()
    pauses = _Pauses(path, clock)
    for line, row in rows:
        at = clock.seconds(line, row)
        session = fields.text(path, line, row, "session_id")
        if session is not None and "think_time" in row:
            pauses.check(line, session, at, fields.number(path, line, row, "think_time", 0.0))
        yield gather.call(line, _call(path, line, row, at, session, book, facts.requests))
    gather.end()


def _call(path: Path, line: int, row: Row, at: float, session: str | None, book: SpanBook, index: int) -> Call:
    tokens = fields.whole(path, line, row, "input_length")
    output = fields.whole(path, line, row, "output_length", 0)
    block_size = fields.whole(path, line, row, "block_size", BLOCK_SIZE)
    if block_size == 0:
        raise InputFault(f"{path}:{line}: block_size is 0; it is the tokens of one block, such as {BLOCK_SIZE}")
    hashes = fields.blocks(path, line, row, "hash_ids")
    fields.check_count(path, line, len(hashes), tokens, block_size)
    stop = fields.text(path, line, row, "stop")
    answer = NO_ANSWER
    if stop is not None or output:
        tools = (None,) if stop == TOOL_USE else ()
        answer = Answer(stop, tools, output, fields.strings(path, line, row, "output_types"))
    name = f"r{index}"
    if session is None:
        return Call(Request(name, owner_of(None), tokens, block_size), hashes, at, answer)
    owner = owner_of(session, fields.text(path, line, row, "agent"))
    model = fields.text(path, line, row, "model")
    spans, turn = book.spans(
        owner,
        model,
        hashes,
        tokens,
        block_size,
        fields.whole(path, line, row, "tool_tokens", 0),
        fields.whole(path, line, row, "system_tokens", 0),
        fields.strings(path, line, row, "input_types"),
    )
    took = fields.seconds(path, line, row, "api_time")
    return Call(Request(name, owner, tokens, block_size, spans, model, {"turn": turn}), hashes, at, answer, took=took)


class _Pauses:
    """A second opinion on the unit: a session's calls cannot be closer than the pause it states between them."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path, self._clock = path, clock
        self._last: dict[str, float] = {}
        self._compared = self._too_close = 0

    def check(self, line: int, session: str, at: float, pause: float) -> None:
        last = self._last.get(session)
        self._last[session] = at
        if last is None or pause < 2.0 or self._compared >= 64:
            return
        self._compared += 1
        self._too_close += at - last < 0.1 * pause
        if self._too_close >= _SOME_PAUSES and self._too_close > self._compared // 2:
            raise InputFault(
                f"{self._path}:{line}: session {session} paused {pause:g} s by its think_time and {at - last:g} s "
                f'by its timestamps if those are in {self._clock.unit}; convert, or state "time_unit" in the first row'
            )
