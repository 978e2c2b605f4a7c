"""How likely a node of a run's graph is to be visited once more before the run ends.

From where the run stands, by the probabilities of edges (stated, seen in earlier runs, or even: `graph_ways`) and by
how often bounded loops may still be taken. Of ways that are taken together the likeliest counts, as they mostly lead to
the same join. Exact for the loops with the tightest bounds, as many as `_MOST_STATES` allows; others count as
unbounded. Called by `signals`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from kvpolicy.workflow.position import Position

_MOST_STATES = 64  # of bounded loops: products of how often each may still be taken
_MOST_VALUES = 20_000  # states times nodes
_SWEEPS, _ENOUGH = 500, 1e-9

_Bounds = tuple[int, ...]  # how often each bounded loop may still be taken
_Rows = list[tuple[float, float, list[int]]]  # of a node: probability, the best known, targets not known yet
_Choices = list[tuple[float, list[tuple[int, int]]]]  # of a node: probability, and its edges with their targets


def visit_probability(position: Position, node: int, taken: Sequence[int] = ()) -> float:
    """P(`node` starts once more), where it does not run now. taken: how often each edge was taken in earlier runs."""
    graph = position.graph
    ahead = _Ahead(position, node, taken)
    best = 0.0
    for index in ahead.nodes:
        if position.running[index]:
            best = max(best, ahead.after(index), ahead.called(index))
        elif index in position.entry:
            best = max(best, ahead.from_start(index))
        held = [e for e in graph.out_of[index] if position.tokens[e] and e not in position.used_up]
        if held:
            best = max(best, ahead.from_tokens(index, held))
    if node in position.entry:
        return 1.0
    return min(1.0, best)


class _Ahead:
    """The chances of all nodes that lead to one, nearest first."""

    def __init__(self, position: Position, node: int, taken: Sequence[int]) -> None:
        self._position, self._node, self._taken = position, node, taken
        self.nodes = _leading_to(position, node)
        inside = set(self.nodes)
        graph = position.graph
        bounded = []
        for e, edge in enumerate(graph.edges):
            if edge.at_most is not None and e not in position.used_up and graph.targets[e] in inside:
                bounded.append((edge.at_most - position.taken[e], e))
        bounded.sort()
        while bounded and prod(left + 1 for left, _ in bounded) > min(
            _MOST_STATES, max(1, _MOST_VALUES // len(self.nodes))
        ):
            bounded.pop()
        self._loops = {e: place for place, (_, e) in enumerate(bounded)}
        self._start: _Bounds = tuple(left for left, _ in bounded)
        self._solved: dict[_Bounds, dict[int, float]] = {}
        for bounds in _below(self._start):  # the fewest left first: a loop leads to one that is solved
            self._solved[bounds] = self._solve(bounds)

    def after(self, index: int) -> float:
        """The chance once a step of the node has ended."""
        return self._solved[self._start].get(index, 0.0)

    def called(self, index: int) -> float:
        """The chance that the node, or what it calls, calls the one looked for while it runs."""
        return self._called(index, self._solved[self._start], {index})

    def from_start(self, index: int) -> float:
        """The chance once a step of the node has begun."""
        return 1.0 if index == self._node else max(self.after(index), self.called(index))

    def from_tokens(self, index: int, held: list[int]) -> float:
        """The chance where the node has ended and its ways on lie open; what was chosen already is certain."""
        choices = self._choices(index, self._start)
        if all(any(e in held for e, _ in edges) for _, edges in choices):
            return self._at_start(choices)
        return self._at_start([(1.0, [(e, self._position.graph.targets[e]) for e in held])])

    def _at_start(self, choices: _Choices) -> float:
        solved = self._solved[self._start]
        return self._value(self._rows(choices, self._start, solved), solved)

    def _solve(self, bounds: _Bounds) -> dict[int, float]:
        """By node: the chance after it. Values grow from 0 to the least solution."""
        chances = dict.fromkeys(self.nodes, 0.0)
        rows = [(index, self._rows(self._choices(index, bounds), bounds, chances)) for index in self.nodes]
        for _ in range(_SWEEPS):
            most = 0.0
            for index, each in rows:
                value = self._value(each, chances)
                most = max(most, value - chances[index])
                chances[index] = value
            if most < _ENOUGH:
                break
        return chances

    def _choices(self, index: int, bounds: _Bounds) -> _Choices:
        gone = self._position.used_up | {e for e, place in self._loops.items() if not bounds[place]}
        graph = self._position.graph
        ways = graph.ways.chances(index, gone, self._taken)
        return [(chance, [(e, graph.targets[e]) for e in edges]) for chance, edges in ways]

    def _rows(self, choices: _Choices, bounds: _Bounds, chances: dict[int, float]) -> _Rows:
        """Each choice with the best that is known of its targets, and those that are being worked out."""
        rows: _Rows = []
        for chance, edges in choices:
            best, open_ = 0.0, []
            for e, target in edges:
                place = self._loops.get(e)
                if target == self._node:
                    best = 1.0
                elif place is None:
                    open_ += [target] if target in chances else []
                else:
                    there = self._solved[(*bounds[:place], bounds[place] - 1, *bounds[place + 1 :])]
                    if target in there:
                        best = max(best, there[target], self._called(target, there, {target}))
            rows.append((chance, best, open_))
        return rows

    def _value(self, rows: _Rows, chances: dict[int, float]) -> float:
        """Looked at thousands of times a solution: nothing is called that need not be."""
        calls = self._position.graph.has_calls
        total = 0.0
        for chance, known, targets in rows:
            best = known
            for target in targets:
                there = chances[target]
                if calls:
                    there = max(there, self._called(target, chances, {target}))
                best = there if there > best else best
            total += chance * best
        return total

    def _called(self, index: int, chances: dict[int, float], seen: set[int]) -> float:
        graph, best = self._position.graph, 0.0
        if not graph.has_calls:
            return 0.0
        for e in graph.out_of[index]:
            edge, target = graph.edges[e], graph.targets[e]
            if not edge.calls or target in seen:
                continue
            chance = 1.0 if edge.probability is None else edge.probability
            if target == self._node:
                best = max(best, chance)
            elif target in chances:
                inside = max(chances[target], self._called(target, chances, seen | {target}))
                best = max(best, chance * inside)
        return best


def _leading_to(position: Position, node: int) -> list[int]:
    """The node and those that lead to it, nearest first."""
    graph = position.graph
    found = {node: None}
    waiting = [node]
    for index in waiting:  # grows while it is walked
        for e in graph.into[index]:
            source = graph.sources[e]
            if source not in found and e not in position.used_up:
                found[source] = None
                waiting.append(source)
    return list(found)


def _below(bounds: _Bounds) -> list[_Bounds]:
    """Every tuple of counts up to these, in an order in which fewer come first."""
    found: list[_Bounds] = [()]
    for bound in bounds:
        found = [(*each, count) for each in found for count in range(bound + 1)]
    return sorted(found, key=sum)
