"""What can be wrong with a workflow graph: a loop that cannot be left, nodes that no way leads to.

Works on the wiring of a graph from any source; its diagnostics go to the command line and to whoever takes graphs
from callers.
"""

from __future__ import annotations

import json
from collections import deque

from kvpolicy.faults import NOTICE, Diagnostic
from kvpolicy.language import codes
from kvpolicy.policy.connected import circles
from kvpolicy.workflow.graph_wiring import Wiring

_NOISE = 1e-9
_MOST = 6  # shares that a message names
_MOST_LOOKS = 500_000  # at edges and nodes, while loops are looked for: a graph that is all loops has a loop an edge


def check(graph: Wiring) -> tuple[Diagnostic, ...]:
    """The faults found while reading, loops without an exit (errors), unreachable nodes and shares that are scaled
    (notices)."""
    place = graph.place
    found = list(graph.problems)
    for names in loops_without_exit(graph):
        found.append(
            codes.LOOP_WITHOUT_EXIT.at(
                place,
                f"the loop {' -> '.join((*names, names[0]))} of workflow {graph.name} has no way out",
                fix=f"add an edge out of it, or a bound: {_bound_on(graph, names[-1], names[0])}",
            )
        )
    for name in unreachable(graph):
        message = f"no way through workflow {graph.name} leads to '{name}'; its spans count as never needed again"
        at = graph.places.get(name, place)
        way = f"NODE -> {name}" if _in_a_text(graph) else f'["NODE", {_json(name)}] among the edges'
        fix = f"write a way to it, such as {way}, or remove it"
        found.append(Diagnostic("UNREACHABLE_NODE", "UNREACHABLE_NODE", NOTICE, at, message, fix=fix))
    for message in scaled_shares(graph):
        found.append(Diagnostic("SHARES_SCALED", "SHARES_SCALED", NOTICE, place, message))
    return tuple(found)


def _in_a_text(graph: Wiring) -> bool:
    """Whether it is a block of a policy: only there do nodes have places. Else its author writes JSON."""
    return bool(graph.places)


def _bound_on(graph: Wiring, source: str, target: str) -> str:
    if _in_a_text(graph):
        return f"loop {source} -> {target} at most 3"
    return f'{{"from": {_json(source)}, "to": {_json(target)}, "at_most": 3}}'


def _json(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


def loops(graph: Wiring) -> tuple[tuple[str, ...], ...]:
    """For every edge that closes a loop, the nodes of a shortest way round, from the node it leads back to; as far as
    `_MOST_LOOKS` goes."""
    found: dict[frozenset[str], tuple[str, ...]] = {}
    left = _MOST_LOOKS
    for edge in _closing_edges(graph):
        way, looks = _shortest(graph, graph.targets[edge], graph.sources[edge], left)
        left -= looks
        if left < 0:
            break
        if way:
            names = tuple(graph.names[index] for index in way)
            found.setdefault(frozenset(names), names)
    return tuple(found.values())


def loops_without_exit(graph: Wiring) -> tuple[tuple[str, ...], ...]:
    """Sets of nodes that lead only to one another, by edges without a bound: a run that enters never ends."""
    ahead: dict[int, list[int]] = {}
    for e, edge in enumerate(graph.edges):
        if edge.at_most is None and not edge.calls:
            ahead.setdefault(graph.sources[e], []).append(graph.targets[e])
    found = []
    for members in sorted(sorted(part) for part in circles(ahead)):
        inside = set(members)
        edges = [graph.edges[e] for index in members for e in graph.out_of[index] if not graph.edges[e].calls]
        if all(graph.number[edge.target] in inside for edge in edges):
            found.append(tuple(graph.names[index] for index in _in_running_order(graph, members)))
    return tuple(found)


def unreachable(graph: Wiring) -> tuple[str, ...]:
    """Nodes that no way from where a run begins leads to."""
    seen, queue = set(graph.entries), deque(graph.entries)
    while queue:
        for e in graph.out_of[queue.popleft()]:
            target = graph.targets[e]
            if target not in seen:
                seen.add(target)
                queue.append(target)
    return tuple(name for index, name in enumerate(graph.names) if index not in seen)


def scaled_shares(graph: Wiring) -> list[str]:
    """A message for each node whose ways out have probabilities that add up to more than 1."""
    found = []
    for index, name in enumerate(graph.names):
        edges = graph.edges
        if sum(edges[e].probability or 0.0 for e in graph.out_of[index]) <= 1.0 + _NOISE:
            continue  # nor do they where some are taken together
        stated = []
        for together in graph.ways.alternatives(index):
            share = next(((e, p) for e in together if (p := edges[e].probability) is not None), None)
            stated += [] if share is None else [share]
        whole = sum(p for _, p in stated)
        if whole > 1.0 + _NOISE:
            shown = [f"'{edges[e].target}' {100.0 * p / whole:.3g}%" for e, p in stated if p][:_MOST]
            found.append(
                f"the ways out of '{name}' in workflow {graph.name} add up to {100.0 * whole:.6g}%, and a run takes "
                f"one of them: they are scaled to 100%, {', '.join(shown)}{', …' * (len(stated) > _MOST)}"
            )
    return found


def _closing_edges(graph: Wiring) -> list[int]:
    """Edges declared as loops, then those that lead back on a depth-first walk from the entries."""
    declared = [index for index, edge in enumerate(graph.edges) if edge.is_loop]
    back: list[int] = []
    state = [0] * len(graph.names)  # 1: on the walk's path, 2: done
    for start in (*graph.entries, *range(len(graph.names))):
        if state[start]:
            continue
        state[start] = 1
        path = [(start, iter(graph.out_of[start]))]
        while path:
            node, edges = path[-1]
            e = next(edges, None)
            if e is None:
                state[node] = 2
                path.pop()
                continue
            if graph.edges[e].is_loop or graph.edges[e].calls:
                continue
            target = graph.targets[e]
            if state[target] == 1:
                back.append(e)
            elif state[target] == 0:
                state[target] = 1
                path.append((target, iter(graph.out_of[target])))
    return [*declared, *sorted(back)]


def _shortest(graph: Wiring, source: int, target: int, most: int) -> tuple[list[int], int]:
    """Nodes of a shortest way from `source` to `target`, both included, [] where there is none; and how many edges were
    looked at, a little more than `most` where that was not enough."""
    before: dict[int, int | None] = {source: None}
    queue = deque([source])
    looks = 1
    while queue and target not in before and looks <= most:
        index = queue.popleft()
        looks += len(graph.out_of[index])
        for e in graph.out_of[index]:
            following = graph.targets[e]
            if following not in before:
                before[following] = index
                queue.append(following)
    if target not in before:
        return [], looks
    way: list[int] = []
    step: int | None = target
    while step is not None:
        way.append(step)
        step = before[step]
    return way[::-1], looks + len(way)


def _in_running_order(graph: Wiring, members: list[int]) -> list[int]:
    """Members of a loop breadth first from the one declared first."""
    left, order, queue = set(members) - {min(members)}, [min(members)], deque([min(members)])
    while queue:
        for e in graph.out_of[queue.popleft()]:
            target = graph.targets[e]
            if target in left:
                left.discard(target)
                order.append(target)
                queue.append(target)
    return order
