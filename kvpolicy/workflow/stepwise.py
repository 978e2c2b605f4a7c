"""Distances kept up to date as a run moves on: only what a step has changed is worked out again.

The algorithm is Ramalingam and Reps' for the generalised shortest-path problem (J. Algorithms 21, 1996,
DynamicSWSF-FP): every node's distance is a function of its predecessors' that is never below any it depends on, as
min + 1 and max + 1 are; nodes whose function no longer agrees with their distance are settled, the nearest first. Where
a step brings a large part of the graph nearer, a whole pass takes less. `distance.measure` is what the answer must
agree with; where that needs its way out of a knot of AND joins, it is asked itself.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from kvpolicy.workflow.distance import UNKNOWN, first_pass, measure, second_pass
from kvpolicy.workflow.marks import Marks

_FEW = 16


class Stepwise:
    """The distances of one run's marks. Two passes, as in `measure`: one in which what arrived in an earlier round need
    not come again, and one in which it must where it can."""

    __slots__ = ("_answer", "_both", "_first", "_joins")

    def __init__(self) -> None:
        self._first: list[int] = []
        self._both: list[int] | None = None  # None as long as nothing arrived in an earlier round
        self._answer: list[int] = []
        self._joins: set[int] = set()  # AND joins that the first pass reaches and the second does not

    def distances(self, marks: Marks) -> list[int]:
        """Distances by node number, UNKNOWN where no way leads; not to be changed.

        INVARIANT: equal to `measure(marks)`.
        """
        dirty, marks.dirty = marks.dirty, set()
        if self._first and not dirty:
            return self._answer
        first = self._first
        changed: dict[int, int] = {}
        if not first or not _settle(marks, first, dirty, lambda index: _by_first(marks, first, index), changed):
            self._first = first_pass(marks)
            before = [changed.get(i, half) for i, half in enumerate(first)]
            changed = {i: old for i, old in enumerate(before) if old != self._first[i]}
        if self._both is None and not any(marks.stale):
            self._answer = self._first
        else:
            self._answer = self._second(marks, dirty, changed)
        return self._answer

    def _second(self, marks: Marks, dirty: set[int], changed: dict[int, int]) -> list[int]:
        graph, first, both = marks.graph, self._first, self._both
        moved: dict[int, int] = {}
        reached = {i for i, before in changed.items() if (before == UNKNOWN) != (first[i] == UNKNOWN)}
        again = {graph.targets[e] for i in reached for e in graph.out_of[i] if graph.waits_for_all[graph.targets[e]]}
        kept = both or []
        if not both or not _settle(
            marks, both, dirty | again, lambda index: _by_both(marks, first, kept, index), moved
        ):
            self._both = both = second_pass(marks, first)
            moved = dict.fromkeys(graph.and_joins, 0)
        for index in (*moved, *reached):
            if graph.waits_for_all[index] and both[index] == UNKNOWN and first[index] != UNKNOWN:
                self._joins.add(index)
            else:
                self._joins.discard(index)
        return measure(marks) if self._joins else both


def _settle(
    marks: Marks,
    distance: list[int],
    dirty: set[int],
    wanted: Callable[[int], int],
    changed: dict[int, int],
) -> bool:
    """Bring `distance` to agree with `wanted` everywhere, where it may not agree at `dirty`; `changed` gets what it was
    where it changed. False, leaving it half done, where so much changes that a whole pass takes less."""
    graph = marks.graph
    targets, out_of = graph.targets, graph.out_of
    differs: dict[int, int] = {}
    heap: list[tuple[int, int]] = []
    for index in dirty:
        value = wanted(index)
        if value != distance[index]:
            differs[index] = value
            heap.append((min(value, distance[index]), index))
    heapq.heapify(heap)
    left = _FEW + len(distance) // 16
    push, pop = heapq.heappush, heapq.heappop
    while heap:
        key, index = pop(heap)
        now = distance[index]
        value = differs.get(index, now)
        if value == now or key != (value if value < now else now):
            continue  # it has been settled, or stands in the heap a second time
        left -= 1
        if left < 0:
            return False
        changed.setdefault(index, now)
        following = [targets[e] for e in out_of[index]]
        if value < now:
            distance[index] = value
            del differs[index]
        else:
            distance[index] = UNKNOWN
            following.append(index)
        for target in following:
            value, now = wanted(target), distance[target]
            if value == now:
                differs.pop(target, None)
            elif differs.get(target) != value or target == index:
                differs[target] = value
                push(heap, (value if value < now else now, target))
    return True


def _by_first(marks: Marks, distance: list[int], index: int) -> int:
    """A node's distance by those of its predecessors; what arrived in an earlier round is one way of several."""
    if marks.running[index] or (not marks.begun and index in marks.entry):
        return 0
    graph = marks.graph
    if not graph.waits_for_all[index]:
        return _nearest(marks, distance, index, graph.into[index], 0)
    required, again = marks.waits_for(index)
    ways = graph.loops_into[index] if required else [*again, *graph.loops_into[index]]
    return min(_farthest(marks, distance, required), _nearest(marks, distance, index, ways, len(required)))


def _by_both(marks: Marks, first: list[int], distance: list[int], index: int) -> int:
    """The same, where an AND join also needs what arrived in an earlier round and can come again."""
    if marks.running[index] or (not marks.begun and index in marks.entry):
        return 0
    graph = marks.graph
    if not graph.waits_for_all[index]:
        return _nearest(marks, distance, index, graph.into[index], 0)
    required, again = marks.waits_for(index)
    required += [e for e in again if first[graph.sources[e]] != UNKNOWN]
    loops = graph.loops_into[index]
    return min(_farthest(marks, distance, required), _nearest(marks, distance, index, loops, len(required)))


def _nearest(marks: Marks, distance: list[int], index: int, edges: list[int], missing: int) -> int:
    sources, used_up = marks.graph.sources, marks.used_up
    best = UNKNOWN
    for e in edges:
        steps = distance[sources[e]]
        if steps < best and e not in used_up:
            best = steps
    if best == 0:
        return 1
    if marks.ready(index, missing):
        return 1
    return best if best == UNKNOWN else best + 1


def _farthest(marks: Marks, distance: list[int], edges: list[int]) -> int:
    sources, used_up = marks.graph.sources, marks.used_up
    worst = -1
    for e in edges:
        steps = UNKNOWN if e in used_up else distance[sources[e]]
        worst = max(worst, steps)
    return UNKNOWN if worst in (-1, UNKNOWN) else worst + 1
