"""How many steps each node of a run's graph is away from running.

The measure is KVFlow's steps-to-execution (arXiv 2507.07400, section 3): 0 for a node that runs, min over predecessors
+ 1 for an ordinary node, max over the predecessors that have not arrived + 1 for an AND join. A node behind a step
that has ended is 1 step away; before a run has begun, its entries are. Breadth first, O(nodes + edges).
"""

from __future__ import annotations

from collections import deque

from kvpolicy.workflow.marks import Marks

UNKNOWN = 1 << 30  # no way there; farther than anything is

_Edges = list[list[int]]  # per node, edges into it


def measure(marks: Marks) -> list[int]:
    """Distances by node number, UNKNOWN where no way leads there.

    An AND join needs the predecessors that have not arrived. One that arrived in an earlier round is needed again only
    if it can come again: a first pass, without them, finds what can.
    """
    required, again = waits(marks)
    found = _spread(marks, required, again, None)
    if not any(again):
        return found
    return _spread(marks, needs(marks, found, required, again), [[] for _ in found], (required, found))


def first_pass(marks: Marks) -> list[int]:
    """Distances where nothing that arrived in an earlier round has to come again."""
    return _spread(marks, *waits(marks), None)


def second_pass(marks: Marks, found: list[int]) -> list[int]:
    """Distances where it has to if it can, and knots of AND joins stay tied; found: those of the first pass."""
    return _spread(marks, needs(marks, found, *waits(marks)), [[] for _ in found], None)


def waits(marks: Marks) -> tuple[_Edges, _Edges]:
    """See `Marks.waits_for`; for every node."""
    required: _Edges = [[] for _ in marks.graph.names]
    again: _Edges = [[] for _ in marks.graph.names]
    for index in marks.graph.and_joins:
        required[index], again[index] = marks.waits_for(index)
    return required, again


def needs(marks: Marks, found: list[int], required: _Edges, again: _Edges) -> _Edges:
    """Edges that each AND join needs; `found`: the distances of the first pass."""
    sources = marks.graph.sources
    return [
        [*r, *(e for e in a if found[sources[e]] != UNKNOWN)] if a else r for r, a in zip(required, again, strict=True)
    ]


def _spread(marks: Marks, required: _Edges, optional: _Edges, before: tuple[_Edges, list[int]] | None) -> list[int]:
    """One pass by levels. `optional` edges satisfy a join that requires none. `before`: the first pass, if this is the
    second."""
    graph = marks.graph
    distance = [UNKNOWN] * len(graph.names)
    missing = [len(edges) for edges in required]
    needed = {e for edges in required for e in edges}
    any_of = {e for index, edges in enumerate(optional) if not required[index] for e in edges}
    targets, waits_for_all, is_loop, used_up = graph.targets, graph.waits_for_all, graph.is_loop, marks.used_up
    queue: deque[int] = deque()

    def reach(index: int, steps: int) -> None:
        if distance[index] == UNKNOWN:
            distance[index] = steps
            queue.append(index)

    for index, running in enumerate(marks.running):
        if running or (not marks.begun and index in marks.entry):
            reach(index, 0)
    due = {graph.targets[e] for e, tokens in enumerate(marks.tokens) if tokens} | marks.entry
    for index in sorted(due):
        if distance[index] == UNKNOWN and marks.ready(index, missing[index]):
            reach(index, 1)
    while True:
        while queue:
            source = queue.popleft()
            following = distance[source] + 1
            for e in graph.out_of[source]:
                target = targets[e]
                if distance[target] != UNKNOWN or e in used_up:
                    continue
                if waits_for_all[target] and not is_loop[e] and e not in any_of:
                    if e not in needed:
                        continue
                    missing[target] -= 1
                    if missing[target]:
                        continue
                distance[target] = following
                queue.append(target)
        stuck = None if before is None else _untie(marks, distance, required, before)
        if stuck is None:
            return distance
        reach(*stuck)


def _untie(
    marks: Marks, distance: list[int], required: _Edges, before: tuple[_Edges, list[int]]
) -> tuple[int, int] | None:
    """The nearest AND join that waits for a node which only it leads to, and its distance: what arrived there before
    counts after all."""
    graph = marks.graph
    first_required, first = before
    best: tuple[int, int] | None = None
    for index, steps in enumerate(distance):
        if steps != UNKNOWN or first[index] == UNKNOWN or not graph.waits_for_all[index]:
            continue
        if any(distance[graph.sources[e]] == UNKNOWN for e in first_required[index]):
            continue
        known = [distance[graph.sources[e]] for e in required[index] if distance[graph.sources[e]] != UNKNOWN]
        if known or any(marks.tokens[e] for e in graph.forward[index]):
            candidate = (max(known, default=0) + 1, index)
            best = candidate if best is None else min(best, candidate)
    return None if best is None else (best[1], best[0])
