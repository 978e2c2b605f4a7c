"""inference-perf's `WorkflowAwarePolicy`: directives for ranges of a prompt, from the recorded graph of its session.

Source: kubernetes-sigs/inference-perf 0.7.0, inference_perf/policies/retention.py, mode `tiered`, its defaults. It
knows the later calls of the session. A range that b of them use again has priority 90 (b ≥ 4), 70 (b ≥ 2) or 50, for
as long as 9 s for each call of the longest row of calls that leave it alone, and 15 s more. As the engine it is meant
for has it (vLLM PR 38514): what has a priority in force leaves after everything that has none, the lowest first, each
least recently used first; a lapsed one counts as none. What no later call uses has no directive.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Hashable, Iterable
from heapq import heappop, heappush

from kvpolicy.simulate.baselines.foresight import session_of
from kvpolicy.simulate.baselines.tree import Key, Node, Order, RadixCache
from kvpolicy.simulate.trace import BlockId, Call

PER_CALL_S, MARGIN_S = 9.0, 15.0  # margin: 10 s for queues and 5 s


class WorkflowAware(Order):
    """note of a node: (priority, until), or None."""

    def __init__(self, calls: list[Call]) -> None:
        self._sessions: dict[Hashable, list[Call]] = defaultdict(list)
        for call in calls:
            self._sessions[session_of(call) or id(call)].append(call)
        self._at = {id(call): i for each in self._sessions.values() for i, call in enumerate(each)}
        self._lapses: list[tuple[float, int, Node]] = []
        self._count = 0

    def place(self, node: Node) -> Key:
        """Without a directive first."""
        return (node.note[0] if node.note else 0, node.used, -node.start)

    def due(self, now: float) -> Iterable[Node]:
        """Directives that lapsed."""
        lapses = self._lapses
        while lapses and lapses[0][0] <= now:
            node = heappop(lapses)[2]
            if node.note and node.note[1] <= now and node.ticket:
                node.note = None
                yield node
            elif node.note and node.note[1] <= now:
                node.note = None

    def served(self, cache: RadixCache, call: Call, path: list[Node]) -> None:
        """The call's directives replace those of earlier ones."""
        for node in path:
            node.note = None
        for start, end, breadth, gap in self.profile(call):
            priority = 90 if breadth >= 4 else 70 if breadth >= 2 else 50
            until = call.at + gap * PER_CALL_S + MARGIN_S
            for node in list(path):
                if node.start >= end or node.start + len(node.blocks) <= start:
                    continue
                if node.start + len(node.blocks) > end:
                    head = cache.split(node, end - node.start)
                    path.insert(path.index(node), head)
                    node = head  # noqa: PLW2901 - the part that the range covers
                node.note = (priority, until)
                self._count += 1
                heappush(self._lapses, (until, self._count, node))

    def profile(self, call: Call) -> list[tuple[int, int, int, int]]:
        """Ranges of the call's blocks, head first: (start, end, how many later calls use it, longest row of calls of
        the session that do not, between two uses)."""
        session = self._sessions[session_of(call) or id(call)]
        index = self._at[id(call)]
        lengths = [_shared(call.hashes, later.hashes) for later in session[index + 1 :]]
        bounds = sorted({length for length in lengths if length})
        if not bounds:
            return []
        ranges, start = [], 0
        gaps = _gaps(lengths, bounds)
        rising = sorted(lengths)
        for end, gap in zip(bounds, gaps, strict=True):
            ranges.append((start, end, len(rising) - bisect_right(rising, end - 1), gap))
            start = end
        return ranges


def _gaps(lengths: list[int], bounds: list[int]) -> list[int]:
    """For each bound, the longest row of later calls that share less than it, before the last that shares it."""
    found = []
    for bound in bounds:
        longest = row = 0
        for length in lengths:
            if length >= bound:
                longest, row = max(longest, row), 0
            else:
                row += 1
        found.append(longest)
    return found


def _shared(one: Iterable[BlockId], other: Iterable[BlockId]) -> int:
    mine, theirs = list(one), list(other)
    low, high = 0, min(len(mine), len(theirs))
    while low < high:
        middle = (low + high + 1) // 2
        if mine[middle - 1] == theirs[middle - 1]:
            low = middle
        else:
            high = middle - 1
    return low
