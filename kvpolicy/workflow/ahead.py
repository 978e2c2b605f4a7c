"""How long until a node of a run's graph may start, in seconds: distances as in `distance`, each step weighed by time.

A node that runs ends after what is left of its step, any other after its typical time from its start on; a barrier
takes none. An ordinary node may start when the first of its predecessors ends, an AND join when the last one does that
it waits for. Dijkstra's algorithm as Knuth generalised it (Information Processing Letters 6, 1977). Called by
`signals`, which says how long steps take.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from kvpolicy.workflow.distance import first_pass, needs, waits
from kvpolicy.workflow.marks import Marks

Takes = Callable[[int], float | None]  # seconds of a node's step; None where nobody knows


def seconds_to_start(marks: Marks, node: int, left: Takes, whole: Takes) -> tuple[float, int | None] | None:
    """Seconds until `node` may start, and the running node that this waits for (None if for none).

    left: what is left of a running node's step; whole: how long another's takes. 0 for a node that runs or may start at
    once. None where no way leads there, or only one over a node of which no time is known.
    """
    return _Clock(marks, left, whole).start_of(node)


class _Clock:
    """Starts of nodes, the earliest first."""

    def __init__(self, marks: Marks, left: Takes, whole: Takes) -> None:
        self._marks, self._left, self._whole = marks, left, whole
        required, again = waits(marks)
        self._required = needs(marks, first_pass(marks), required, again) if any(again) else required
        self._settled: dict[int, tuple[float, int | None]] = {}
        self._heap: list[tuple[float, int, int]] = []  # (seconds, node, the running node that it waits for or -1)
        due = {marks.graph.targets[e] for e, tokens in enumerate(marks.tokens) if tokens} | marks.entry
        for index, running in enumerate(marks.running):
            at_once = running or (not marks.begun and index in marks.entry)
            if at_once or (index in due and marks.ready(index, len(self._required[index]))):
                self._may_start(0.0, index, None)

    def start_of(self, node: int) -> tuple[float, int | None] | None:
        """See `seconds_to_start`."""
        while self._heap:
            start, index, behind = heapq.heappop(self._heap)
            if index in self._settled:
                continue
            waited_for = None if behind < 0 else behind
            self._settled[index] = start, waited_for
            if index == node:
                return start, waited_for
            self._pass_on(index)
        return None

    def _may_start(self, seconds: float, index: int, waited_for: int | None) -> None:
        if index not in self._settled:
            heapq.heappush(self._heap, (seconds, index, -1 if waited_for is None else waited_for))

    def _end(self, index: int) -> tuple[float, int | None] | None:
        """When a settled node ends, and what that waits for."""
        start, waited_for = self._settled[index]
        running = self._marks.running[index]
        takes = self._left(index) if running else self._whole(index)
        return None if takes is None else (start + takes, index if running else waited_for)

    def _pass_on(self, index: int) -> None:
        graph, used_up = self._marks.graph, self._marks.used_up
        end = self._end(index)
        for e in graph.out_of[index]:
            target = graph.targets[e]
            if e in used_up:
                continue
            if graph.waits_for_all[target] and not graph.is_loop[e]:
                if e in self._required[target]:
                    self._join(target)
            elif graph.edges[e].calls:
                self._may_start(self._settled[index][0], target, self._settled[index][1])
            elif end is not None:
                self._may_start(end[0], target, end[1])

    def _join(self, target: int) -> None:
        """An AND join may start when the last of those that it waits for ends, once all of them have their place."""
        last: tuple[float, int | None] = 0.0, None
        for e in self._required[target]:
            source = self._marks.graph.sources[e]
            end = self._end(source) if source in self._settled and e not in self._marks.used_up else None
            if end is None:
                return
            if end[0] >= last[0]:
                last = end
        self._may_start(last[0], target, last[1])
