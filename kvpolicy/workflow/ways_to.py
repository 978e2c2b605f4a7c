"""The chances of one node from all that lead to it, by the probabilities of edges and the bounds of loops.

Where every way leads to the node the chance is 1, and nothing is solved; the rest goes to `hitting`, a strongly
connected part at a time, once for every count of bounded loops that may be left. Made by `chance` for a question.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod

from kvpolicy.policy.connected import parts
from kvpolicy.workflow.hitting import Call, Choice, Part, Row, Work
from kvpolicy.workflow.position import Position

_MOST_STATES = 64  # of bounded loops: products of how often each may still be taken
_WHOLE = 1.0 - 1e-12  # a sum of probabilities that leaves nothing, rounding apart
_WALKED, _LISTED = 2, 8  # what an edge costs that is walked along, or listed in a row

_Bounds = tuple[int, ...]  # how often each bounded loop may still be taken
Choices = list[tuple[float, list[tuple[int, int]]]]  # of a node: probability, and its edges with their targets


class WaysTo:
    """nodes: the one looked for, then those on the way to it. ahead: where the run may come. choices: what it may
    choose behind a node once these bounded loops are used up. Making one raises TooMuch where that costs more than
    `work` has left."""

    def __init__(
        self,
        position: Position,
        node: int,
        ahead: set[int],
        choices: Callable[[int, frozenset[int]], Choices],
        work: Work,
    ) -> None:
        self._graph, self._node, self._work = position.graph, node, work
        self._gone, self._chosen = position.used_up, choices
        self.nodes = self._leading_to(ahead)
        cost = _LISTED * sum(1 + len(self._graph.out_of[index]) for index in self.nodes)  # of going through them once
        self._work.take(2 * cost)
        self._loops = self._counted(position, cost)
        self._start: _Bounds = tuple(left for left, _ in self._loops.values())
        self._place = {e: place for place, e in enumerate(self._loops)}
        self._loops_of: dict[int, list[int]] = {}
        for e in self._loops:
            self._loops_of.setdefault(self._graph.sources[e], []).append(e)
        self._certain = self._surely()
        self._solved: dict[_Bounds, dict[int, float]] = {}
        self._solve()

    def at(self, index: int) -> float:
        """The chance where a step of the node has begun: after it, or by what it calls."""
        return 1.0 if index in self._certain else self._solved[self._start][index]

    def from_tokens(self, index: int, held: list[int]) -> float:
        """The chance where the node has ended and its ways on lie open; what was chosen already is certain."""
        choices = self._choices(index, self._start)
        if not all(any(e in held for e, _ in edges) for _, edges in choices):
            choices = [(1.0, [(e, self._graph.targets[e]) for e in held])]
        there, below = self._solved[self._start], self._below(self._start)
        return sum(chance * self._best(edges, there, below) for chance, edges in choices)

    def _leading_to(self, ahead: set[int]) -> list[int]:
        """The node and those on the way to it, nearest first."""
        graph = self._graph
        found = {self._node: None}
        waiting = [self._node]
        for index in waiting:  # grows while it is walked
            self._work.take(_WALKED * len(graph.into[index]))
            for e in graph.into[index]:
                source = graph.sources[e]
                if source not in found and source in ahead and e not in self._gone:
                    found[source] = None
                    waiting.append(source)
        return waiting

    def _counted(self, position: Position, cost: int) -> dict[int, tuple[int, int]]:
        """The bounded loops that are counted: by edge, how often it may still be taken. cost: of one set of counts."""
        inside, graph = set(self.nodes), self._graph
        bounded = [
            (edge.at_most - position.taken[e], e)
            for index in self.nodes
            for e in graph.out_of[index]
            if (edge := graph.edges[e]).at_most is not None and e not in self._gone and graph.targets[e] in inside
        ]
        bounded.sort()
        most = min(_MOST_STATES, self._work.left // (2 * cost))
        while bounded and prod(left + 1 for left, _ in bounded) > most:
            bounded.pop()
        return {e: (left, e) for left, e in bounded}

    def _surely(self) -> set[int]:
        """Nodes from which every way leads to the one looked for, however long it takes and whatever is chosen. In a
        graph that is not left before everything has been visited these are all, and nothing has to be solved."""
        inside = set(self.nodes)
        misses = []  # they may lead past it
        behind: dict[int, list[int]] = {index: [] for index in self.nodes}  # who leads to a node by what is not counted
        before: dict[int, list[int]] = {index: [] for index in self.nodes}  # … and by anything
        for index in self.nodes:
            if index == self._node:
                continue
            choices = self._choices(index, self._start)
            misses_it = not choices or sum(chance for chance, _ in choices) < _WHOLE
            stays = False  # something is open once what is counted is used up
            for chance, edges in choices:
                for e, target in edges:
                    if target not in inside:
                        misses_it = True
                        continue
                    before[target].append(index)
                    if e not in self._place:
                        stays = True
                        if chance > 0.0:
                            behind[target].append(index)
            if misses_it or not stays:
                misses.append(index)
        leads = _walk([self._node], behind)
        misses += [index for index in self.nodes if index not in leads]
        before[self._node] = []
        return inside - _walk(misses, before) - {self._node}

    def _solve(self) -> None:
        graph = self._graph
        open_ones = [index for index in self.nodes if index not in self._certain]
        inside = set(open_ones)
        within: dict[int, list[int]] = {}
        for index in open_ones:
            ways = (e for e in graph.out_of[index] if e not in self._gone and e not in self._place)
            within[index] = [t for e in ways if (t := graph.targets[e]) in inside and t != self._node]
        cost = _LISTED * sum(1 + len(ways) for ways in within.values())
        order = [(part, Part(self._work)) for part in parts(within)]
        numbers = [{index: number for number, index in enumerate(part)} for part, _ in order]
        loops = [[self._place[e] for index in part for e in self._loops_of.get(index, ())] for part, _ in order]
        for bounds in _up_to(self._start):  # the fewest left first: a loop leads to one that is solved
            self._work.take(cost)
            there = self._solved[bounds] = {}
            below = self._below(bounds)
            for (members, part), numbered, places in zip(order, numbers, loops, strict=True):
                if len(members) == 1 and members[0] not in within[members[0]]:
                    there[members[0]] = self._straight(members[0], bounds, there, below)
                else:
                    rows = [self._row(index, bounds, numbered, there, below) for index in members]
                    values = part.solve(rows, tuple(bounds[place] == 0 for place in places))
                    there.update(zip(members, values, strict=True))

    def _choices(self, index: int, bounds: _Bounds) -> Choices:
        used_up = frozenset(e for e in self._loops_of.get(index, ()) if not bounds[self._place[e]])
        return self._chosen(index, used_up)

    def _below(self, bounds: _Bounds) -> dict[int, dict[int, float]]:
        """By bounded loop that may still be taken: the chances once it was."""
        return {
            e: self._solved[(*bounds[:place], bounds[place] - 1, *bounds[place + 1 :])]
            for e, place in self._place.items()
            if bounds[place]
        }

    def _best(
        self, edges: Iterable[tuple[int, int]], there: dict[int, float], below: dict[int, dict[int, float]]
    ) -> float:
        """The likeliest of ways that are taken together, as far as their targets are worked out."""
        best = 0.0
        for e, target in edges:
            if target == self._node or target in self._certain:
                return 1.0
            chance = below.get(e, there).get(target, 0.0)
            best = max(chance, best)
        return best

    def _calls(self, index: int) -> list[tuple[float, int, int]]:
        """(probability, edge, whom) of each that the node may call."""
        graph = self._graph
        if not graph.has_calls:
            return []
        called = [(graph.edges[e], e, graph.targets[e]) for e in graph.out_of[index] if graph.edges[e].calls]
        return [(1.0 if edge.probability is None else edge.probability, e, target) for edge, e, target in called]

    def _straight(
        self, index: int, bounds: _Bounds, there: dict[int, float], below: dict[int, dict[int, float]]
    ) -> float:
        """The chance of a node to which nothing leads back."""
        value = 0.0
        for chance, edges in self._choices(index, bounds):
            value += chance * self._best(edges, there, below)
        for chance, e, target in self._calls(index):
            value = max(value, chance * self._best([(e, target)], there, below))
        return value

    def _row(
        self,
        index: int,
        bounds: _Bounds,
        numbered: dict[int, int],
        there: dict[int, float],
        below: dict[int, dict[int, float]],
    ) -> Row:
        """What follows a node of a part: chances that are worked out, and ways within the part."""
        choices: list[Choice] = []
        for chance, edges in self._choices(index, bounds):
            within = [numbered[target] for e, target in edges if target in numbered and e not in self._place]
            known = self._best(edges, there, below)
            choices.append((chance, known, within if known < 1.0 else []))
        calls: list[Call] = []
        called = 0.0
        for chance, e, target in self._calls(index):
            if target in numbered and target != self._node:
                calls.append((chance, numbered[target]))
            else:
                called = max(called, chance * self._best([(e, target)], there, below))
        return Row(choices, calls, called)


def _walk(begin: Iterable[int], ways: Mapping[int, Sequence[int]]) -> set[int]:
    """The nodes that these ways lead to."""
    waiting = list(dict.fromkeys(begin))
    found = set(waiting)
    for index in waiting:  # grows while it is walked
        for target in ways[index]:
            if target not in found:
                found.add(target)
                waiting.append(target)
    return found


def _up_to(bounds: _Bounds) -> list[_Bounds]:
    """Every tuple of counts up to these, in an order in which fewer come first."""
    found: list[_Bounds] = [()]
    for bound in bounds:
        found = [(*each, count) for each in found for count in range(bound + 1)]
    return sorted(found, key=sum)
