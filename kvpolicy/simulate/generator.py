"""A seeded generator of coding-agent sessions, for where no real trace is to be had. Its figures are published ones;
what it makes is labelled as generated and proves nothing about real traffic.

| quantity | figure used | source |
|---|---|---|
| calls a session | median 48, mean 80 | public Claude Code traces (callanjfox/kv-cache-tester) |
| tool definitions and system prompt | about 10.5k and 2.6k tokens | the same |
| new tokens a call | p50 704, p90 4,032 | the same |
| output tokens | p10 103, p50 218, p90 937 | the same |
| pause after a tool call | p50 9 s, p90 71 s | the same |
| pause after an answer | p50 210 s, p90 2,982 s | the same |
| calls a human's message leads to | about 5 | the same (17 % of calls bring text) |
| context window | 200k tokens, then compacted | the model's limit |

Each is drawn log-normal through its two quantiles, independently: an assumption. Sessions of one agent share tools and
system prompt, as an engine with global hashes would see it. Memory: the sessions that run at one moment.
"""

from __future__ import annotations

import hashlib
import heapq
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kvpolicy.request import Owner, Request
from kvpolicy.simulate.chain import Prefixes
from kvpolicy.simulate.spans import SpanBook
from kvpolicy.simulate.trace import END_TURN, TOOL_USE, Answer, Call, Facts, Progress

BLOCK_SIZE = 512
_AGENTS = (("coder", 10_500, 2_600), ("explorer", 8_300, 700), ("reviewer", 6_200, 1_900))
_WINDOW_TOKENS = 200_000
_TEXT_SHARE = 0.17
_Z90 = 1.2816  # the normal distribution's 90 % quantile


@dataclass(frozen=True, slots=True)
class GeneratedTrace:
    """`sessions` sessions with starts uniform over `window_s` seconds; the same seed gives the same calls."""

    seed: int = 7
    sessions: int = 60
    window_s: float = 2 * 3600.0
    gap_cap_s: float = 3600.0
    name: str = "generated"

    def calls(self, facts: Facts, progress: Progress | None = None) -> Iterator[Call]:
        """Calls in order of time; fills `facts`."""
        facts.form = "generated"
        facts.block_size = BLOCK_SIZE
        facts.label = f"GENERATED from published figures, no real traffic: seed {self.seed}, {self.sessions} sessions"
        facts.sha256 = hashlib.sha256(repr(self).encode()).hexdigest()  # it names the settings, there is no file
        draw = random.Random(self.seed)
        starts = sorted(draw.uniform(0.0, self.window_s) for _ in range(self.sessions))
        book, blocks, seen = SpanBook(), _Blocks(), Prefixes()
        running: list[tuple[float, int, Iterator[tuple[float, Call]], Call]] = []
        for number, start in enumerate([*starts, math.inf]):
            while running and running[0][0] < start:
                at, order, rest, call = heapq.heappop(running)
                call.at = at
                yield _counted(call, facts, seen)
                _push(running, order, rest)
            if start < math.inf:
                session = _session(
                    f"g{number}", random.Random(f"{self.seed}/{number}"), start, self.gap_cap_s, book, blocks
                )
                _push(running, number, session)
                facts.sessions = number + 1
                if progress is not None:
                    progress(number / len(starts))


class _Blocks:
    """New block ids, and those of the agents' shared heads."""

    def __init__(self) -> None:
        self._next = 0
        self.heads = {name: self.new((tools + system) // BLOCK_SIZE) for name, tools, system in _AGENTS}

    def new(self, count: int) -> list[int]:
        self._next += count
        return list(range(self._next - count, self._next))


def _session(
    name: str, draw: random.Random, start: float, cap_s: float, book: SpanBook, blocks: _Blocks
) -> Iterator[tuple[float, Call]]:
    agent, tools, system = draw.choice(_AGENTS)
    owner, at, stop = Owner(session=name, agent=agent), start, END_TURN
    hashes = list(blocks.heads[agent])
    tokens = tools + system + round(_between(draw, 704, 4_032))
    for index in range(max(1, round(_lognormal(draw, 48, math.sqrt(2 * math.log(80 / 48)))))):
        types = ("text",) if stop == END_TURN else ("tool_result",)
        full = tokens // BLOCK_SIZE
        hashes = hashes[:full] + blocks.new(max(full - len(hashes), 0))
        spans, turn = book.spans(owner, None, hashes, tokens, BLOCK_SIZE, tools, system, types)
        output = round(_between(draw, 218, 937))
        stop = END_TURN if draw.random() < _TEXT_SHARE else TOOL_USE
        answer = Answer(stop, (None,) if stop == TOOL_USE else (), output)
        request = Request(f"{name}#{index}", owner, tokens, BLOCK_SIZE, spans, None, {"turn": turn})
        yield at, Call(request, list(hashes), at, answer)
        pause = _between(draw, 9, 71) if stop == TOOL_USE else _between(draw, 210, 2_982)
        at += min(pause, cap_s)
        tokens += output + round(_between(draw, 704, 4_032))
        if tokens > _WINDOW_TOKENS:  # compacted: the head, and a summary of the rest
            hashes = list(blocks.heads[agent])
            tokens = tools + system + round(_between(draw, 8_000, 16_000))


def _between(draw: random.Random, median: float, p90: float) -> float:
    return _lognormal(draw, median, math.log(p90 / median) / _Z90)


def _lognormal(draw: random.Random, median: float, sigma: float) -> float:
    return median * math.exp(draw.gauss(0.0, sigma))


def _push(
    running: list[tuple[float, int, Iterator[tuple[float, Call]], Call]], order: int, rest: Iterator[tuple[float, Call]]
) -> None:
    following = next(rest, None)
    if following is not None:
        heapq.heappush(running, (following[0], order, rest, following[1]))


def _counted(call: Call, facts: Facts, seen: Prefixes) -> Call:
    call.seen = seen.add(Path(facts.form), facts.requests + 1, call.hashes)
    facts.count(call)
    facts.unique_blocks = len(seen)
    return call
