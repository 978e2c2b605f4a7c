"""Claude Code sessions in the Weka form: one session a line, block ids local to it, sub-agents nested in it.

The source has no start times, so every interleaving is ours (`Interleaving`): starts drawn uniformly over a window from
a seed, idle gaps capped. Spans come from `tool_tokens` and `system_tokens` (a sub-agent has its own), the rest from
growth. A sub-agent is an owner of its own: the session's id, its type as the agent's name, its id as the branch; its
answer to the parent is its `agent_end`.

Memory: the sessions that run at one moment, and one number per session. Gzip files are unpacked to a temporary file,
because sessions are read in the order of their starts.
"""

from __future__ import annotations

import heapq
import random
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from kvpolicy.faults import InputFault
from kvpolicy.request import Request
from kvpolicy.simulate import fields
from kvpolicy.simulate.fields import Row
from kvpolicy.simulate.gather import Gather
from kvpolicy.simulate.interleaving import Interleaving
from kvpolicy.simulate.lines import open_bytes, parse, rows
from kvpolicy.simulate.spans import SpanBook
from kvpolicy.simulate.trace import END_TURN, TOOL_USE, Answer, Call, Facts, Progress, owner_of


def fits(row: Row) -> bool:
    """Is this the first row of such a trace?"""
    return isinstance(row.get("requests"), list) and "id" in row


def calls(path: Path, how: Interleaving, facts: Facts, progress: Progress | None = None) -> Iterator[Call]:
    """The calls of all sessions in order of time."""
    with ExitStack() as stack:
        file = _seekable(path, stack)
        starts = _starts(path, file, how)
        gather, book = Gather(path, facts, "s", True), SpanBook()
        running: list[_Next] = []
        first_id = 0
        for started, (start, order, line, offset) in enumerate([*starts, (float("inf"), 0, 0, -1)]):
            while running and running[0][0] < start:
                _, number, place, rest, call = heapq.heappop(running)
                yield gather.call(place, call)
                _push(running, number, place, rest)
            if offset >= 0:
                file.seek(offset)
                session = _Session(path, line, parse(path, line, file.readline()), how, start, first_id, book)
                first_id = session.next_id
                _push(running, order, line, session.calls())
                if progress is not None:
                    progress(started / len(starts))
        gather.end()


_Next = tuple[
    float, int, int, Iterator[tuple[float, Call]], Call
]  # time, order, line, the session's rest, its next call


def _push(running: list[_Next], order: int, line: int, rest: Iterator[tuple[float, Call]]) -> None:
    following = next(rest, None)
    if following is not None:
        heapq.heappush(running, (following[0], order, line, rest, following[1]))


def _seekable(path: Path, stack: ExitStack) -> BinaryIO:
    stream, raw = open_bytes(path)
    if stream is raw:
        return stack.enter_context(raw)
    raw.close()
    unpacked: BinaryIO = stack.enter_context(tempfile.TemporaryFile(prefix="kvp-trace-"))  # noqa: SIM115
    for _ in rows(path):  # every fault of the gzip stream and its lines, told with its place
        pass
    stream, raw = open_bytes(path)
    with raw:
        shutil.copyfileobj(stream, unpacked)
    unpacked.seek(0)
    return unpacked


def _starts(path: Path, file: BinaryIO, how: Interleaving) -> list[tuple[float, int, int, int]]:
    """(start, order of the draw, line, byte offset) of every session that is kept, by start."""
    places, offset = [], 0
    for line, text in enumerate(file, 1):
        if not text.isspace():
            session = fields.text(path, line, parse(path, line, text), "id")
            if session is None:
                raise InputFault(f"{path}:{line}: id is missing; every session has one")
            if how.keeps(session):
                places.append((line, offset))
        offset += len(text)
    if not places:
        raise InputFault(f"{path}: no sessions{' in part ' + how.part if how.part else ''}")
    draw = random.Random(how.seed)
    chosen = places if how.sample is None else draw.sample(places, min(how.sample, len(places)))
    return sorted((draw.uniform(0.0, how.window_s), order, *place) for order, place in enumerate(chosen))


class _Session:
    """One session's calls in order of time, its local ids moved to a range of their own."""

    def __init__(
        self, path: Path, line: int, row: Row, how: Interleaving, start: float, first_id: int, book: SpanBook
    ) -> None:
        self._path, self._line, self._how, self._start, self._book = path, line, how, start, book
        self._id = str(row["id"])
        self._block_size = fields.whole(path, line, row, "block_size", 64)
        if self._block_size == 0:
            raise InputFault(f"{path}:{line}: block_size is 0; it is the tokens of one block, such as 64")
        self._shift = first_id
        # (time from the session's start, its agent's row, the call's row)
        self._rows = sorted(self._flat(row, 0.0), key=lambda timed: timed[0])
        ids = [block for _, _, call in self._rows for block in self._ends(call)]
        self.next_id = first_id + max(ids, default=0) + 1

    def calls(self) -> Iterator[tuple[float, Call]]:
        """(seconds from the trace's start, call)."""
        cut, last = 0.0, self._rows[0][0] if self._rows else 0.0
        for index, (t, agent, row) in enumerate(self._rows):
            cut += max(t - last - self._how.gap_cap_s, 0.0)
            last = t
            at = round(self._start + t - cut, 3)  # whole milliseconds, as the Mooncake form has them
            yield at, self._call(index, at, agent, row)

    def _flat(self, agent: Row, clock: float) -> Iterator[tuple[float, Row, Row]]:
        requests = agent.get("requests")
        if not isinstance(requests, list):
            raise InputFault(f"{self._path}:{self._line}: requests is no list; every session has one")
        for row in requests:
            if not isinstance(row, dict):
                raise InputFault(f"{self._path}:{self._line}: a request of session {self._id} is no JSON object")
            t = clock + fields.number(self._path, self._line, row, "t")
            if isinstance(row.get("requests"), list):
                yield from self._flat(row, t)
            else:
                yield t, agent, row

    def _call(self, index: int, at: float, agent: Row, row: Row) -> Call:
        path, line, how = self._path, self._line, self._how
        tokens = fields.whole(path, line, row, "in")
        hashes = self._blocks(row)
        fields.check_count(path, line, len(hashes), tokens, self._block_size)
        block_size = self._block_size * how.coarsen
        hashes = hashes[
            how.coarsen - 1 :: how.coarsen
        ]  # an id names all before it, so the last of a group names the group
        branch = fields.text(path, line, agent, "agent_id")
        name = fields.text(path, line, agent, "subagent_type")
        owner = owner_of(self._id, name, branch, self._id if branch else None)
        model = fields.text(path, line, row, "model")
        tools = fields.whole(path, line, agent, "tool_tokens", 0)
        system = fields.whole(path, line, agent, "system_tokens", 0)
        types = fields.strings(path, line, row, "input_types")
        spans, turn = self._book.spans(owner, model, hashes, tokens, block_size, tools, system, types)
        stop = fields.text(path, line, row, "stop")
        output = fields.whole(path, line, row, "out", 0)
        tool_calls = (None,) if stop == TOOL_USE else ()
        answer = Answer(stop, tool_calls, output, fields.strings(path, line, row, "output_types"))
        attributes: dict[str, object] = {"turn": turn, "depth": 1 if branch else 0}
        request = Request(f"{self._id}#{index}", owner, tokens, block_size, spans, model, attributes)
        after: tuple[dict[str, object], ...] = ()
        if branch is not None and stop == END_TURN:
            after = ({"event": "agent_end", "session": self._id, "agent": name, "branch": branch},)
        took = fields.seconds(path, line, row, "api_time")
        return Call(request, hashes, at, answer, (), after, took=took)

    def _blocks(self, row: Row) -> list[int]:
        shift = self._shift
        if "hash_ids" in row:
            ids = fields.blocks(self._path, self._line, row, "hash_ids")
            return [shift + block for block in ids if isinstance(block, int)]
        ranges = self._ranges(row)
        return list(chain.from_iterable(range(first + shift, last + shift + 1) for first, last in ranges))

    def _ends(self, row: Row) -> list[int]:
        if "hash_ids" in row:
            ids = fields.blocks(self._path, self._line, row, "hash_ids")
            if not all(isinstance(block, int) for block in ids):
                raise InputFault(f"{self._path}:{self._line}: hash_ids of session {self._id} are not all integers")
            return [block for block in ids if isinstance(block, int)]
        return [last for _, last in self._ranges(row)]

    def _ranges(self, row: Row) -> list[tuple[int, int]]:
        ranges = row.get("hash_ranges")
        if isinstance(ranges, list) and all(_is_range(pair) for pair in ranges):
            return [(first, last) for first, last in ranges]
        raise InputFault(
            f"{self._path}:{self._line}: a request of session {self._id} has neither hash_ids nor hash_ranges of "
            "[first, last]"
        )


def _is_range(pair: object) -> bool:
    return (
        isinstance(pair, list)
        and len(pair) == 2
        and type(pair[0]) is int
        and type(pair[1]) is int
        and 0 <= pair[0] <= pair[1]
    )
