"""How likely a node of a run's graph is to be visited once more before the run ends.

From where the run stands, by the probabilities of edges (stated, seen in earlier runs, or even: `graph_ways`) and by
how often bounded loops may still be taken. Of ways that are taken together the likeliest counts, as they mostly lead to
the same join. Exact for the loops with the tightest bounds, as many as the work that a question may cost allows; others
count as unbounded. What costs more has no answer. Kept by `standing` between two steps, asked by `runs`.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvpolicy.workflow.hitting import TooMuch, Work
from kvpolicy.workflow.position import Position
from kvpolicy.workflow.ways_to import Choices, WaysTo

# INVARIANT: what is worked out for all nodes of one position together is bounded, whatever the graph, and the same
# whoever asks first.
MOST_WORK = 5_000_000  # multiplications or so for all nodes of a graph together: half a second
MOST_OF_ONE = 100_000  # for one node


class Chances:
    """The chances of nodes from where a run stands now. taken: how often each edge was taken in earlier runs."""

    __slots__ = ("_ahead", "_choices", "_known", "_position", "taken")

    def __init__(self, position: Position, taken: Sequence[int] = ()) -> None:
        self.taken = taken
        self._position = position
        self._known: dict[int, float | None] = {}
        self._choices: dict[tuple[int, frozenset[int]], Choices] = {}
        self._ahead: set[int] | None = None

    def of(self, node: int) -> float | None:
        """P(`node` starts once more), where it does not run now; None where that would take too long to work out."""
        if node not in self._known:
            self._known[node] = self._work_out(node)
        return self._known[node]

    def choices(self, index: int, gone: frozenset[int]) -> Choices:
        """What a run may choose behind a node. gone: bounded loops out of it that are used up by then."""
        found = self._choices.get((index, gone))
        if found is None:
            graph = self._position.graph
            ways = graph.ways.chances(index, self._position.used_up | gone, self.taken)
            found = [(chance, [(e, graph.targets[e]) for e in edges]) for chance, edges in ways]
            self._choices[index, gone] = found
        return found

    def ahead(self) -> set[int]:
        """The nodes that the run may come to, and those where it stands."""
        if self._ahead is None:
            position, graph = self._position, self._position.graph
            found = {index for index, running in enumerate(position.running) if running} | position.entry
            found |= {graph.sources[e] for e, tokens in enumerate(position.tokens) if tokens}
            waiting = list(found)
            for index in waiting:  # grows while it is walked
                for e in graph.out_of[index]:
                    target = graph.targets[e]
                    if target not in found and e not in position.used_up:
                        found.add(target)
                        waiting.append(target)
            self._ahead = found
        return self._ahead

    def _work_out(self, node: int) -> float | None:
        position, graph = self._position, self._position.graph
        if node in position.entry:
            return 1.0
        if node not in self.ahead():
            return 0.0
        work = Work(min(MOST_OF_ONE, MOST_WORK // len(graph.names)))
        try:
            found = WaysTo(position, node, self.ahead(), self.choices, work)
        except TooMuch:
            return None
        best = 0.0
        for index in found.nodes:
            if position.running[index] or index in position.entry:
                best = max(best, found.at(index))
            held = [e for e in graph.out_of[index] if position.tokens[e] and e not in position.used_up]
            if held:
                best = max(best, found.from_tokens(index, held))
        return min(1.0, best)
