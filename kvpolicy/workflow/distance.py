"""Where one run stands in its graph, and how many steps each node is away from running.

The measure is KVFlow's steps-to-execution (arXiv 2507.07400, section 3): 0 for a node that runs, min over predecessors
+ 1 for an ordinary node, max over the predecessors that have not arrived + 1 for an AND join. `runs` feeds a `Position`
with the starts and ends of steps. Between two changes the distances are computed once, breadth first: O(nodes + edges).
"""

from __future__ import annotations

from collections import deque

from kvpolicy.policy.model import NEVER
from kvpolicy.workflow.graph import BARRIER, Graph

_UNKNOWN = -1


class Position:
    """One run in its graph.

    A step that ends leaves a token on each edge out of it; a step that starts takes the token it came by. An AND join
    takes the tokens of all its predecessors. A predecessor that arrived in an earlier round and cannot come again does
    not keep an AND join waiting.
    """

    __slots__ = (
        "_begun",
        "_counts",
        "_distances",
        "_entry",
        "_instances",
        "_is_and",
        "_lost",
        "_order",
        "_running",
        "_stale",
        "_taken",
        "_tokens",
        "graph",
    )

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        nodes, edges = len(graph.names), len(graph.edges)
        self._is_and = [graph.is_and(name) for name in graph.names]
        self._running = [0] * nodes
        self._instances = [0] * nodes  # started in this round, of a fan-out whose count is known
        self._lost = [0] * nodes
        self._order = 0
        self._tokens = [0] * edges
        self._stale = [False] * edges  # arrived in an earlier round
        self._taken = [0] * edges
        self._entry = set(graph.entries)  # entries that have not begun
        self._counts: dict[str, int] = {}
        self._begun = False
        self._distances: list[int] | None = None

    # --- what happens -------------------------------------------------------------------------------------

    def start(self, node: str) -> None:
        """A step of `node` began. One that runs already is a repeat, unless its edge fans out."""
        index = self.graph.number.get(node)
        if index is None or (self._running[index] and not self._fans(index)):
            return
        self._distances = None
        self._begun = True
        self._leave_entries(index)
        self._consume(index)
        if not self._running[index] and not self._fans(index):
            for edge in self.graph.out_of[index]:  # a new round: what it sent before is past
                if self._tokens[edge]:
                    self._tokens[edge], self._stale[edge] = 0, True
        self._running[index] += 1

    def end(self, node: str) -> None:
        """A step of `node` ended. Without a start it is taken for a lost start where the node was due."""
        index = self.graph.number.get(node)
        if index is None:
            return
        if not self._running[index]:
            due = not self._begun or self._steps(index) == 1
            if not due and any(self._tokens[e] or self._stale[e] for e in self.graph.out_of[index]):
                return
            self.start(node)
        self._distances = None
        self._running[index] -= 1
        for edge in self.graph.out_of[index]:
            self._tokens[edge] += 1

    def barrier(self, node: str) -> None:
        """An AND join was reached; where nothing runs at it, it is passed at once."""
        index = self.graph.number.get(node)
        if index is not None and not self._running[index]:
            self.start(node)
            self.end(node)

    def lost(self, node: str) -> None:
        """One instance of a fan-out will not arrive."""
        index = self.graph.number.get(node)
        if index is not None:
            self._distances = None
            self._lost[index] += 1
            self._running[index] = max(0, self._running[index] - 1)

    def fan_out(self, name: str, count: int) -> None:
        """The number behind `* name` is known now."""
        self._distances = None
        self._counts[name] = count

    # --- what follows -------------------------------------------------------------------------------------

    def steps(self, node: str) -> float | None:
        """Steps until `node` may run: 0 while it runs, NEVER where no way leads there; None for an unknown node."""
        index = self.graph.number.get(node)
        return None if index is None else self._steps(index)

    def all_steps(self) -> dict[str, float]:
        """Steps of every node."""
        return {name: self._steps(index) for index, name in enumerate(self.graph.names)}

    def instances(self, node: str) -> int | None:
        """How many instances of `node` the edges into it ask for, where that is known."""
        index = self.graph.number.get(node)
        return None if index is None else self._expected(index)

    def _steps(self, index: int) -> float:
        if self._distances is None:
            self._distances = self._measure()
        steps = self._distances[index]
        return NEVER if steps == _UNKNOWN else steps

    def _measure(self) -> list[int]:
        """Distances by levels. With arrivals of an earlier round in play, a first pass tells what can come again."""
        required = [self._waits(index) for index in range(len(self.graph.names))]
        optional = self._optional()
        found = self._spread(required, optional)
        if not any(optional):
            return found
        again = [
            [*waits, *(e for e in extra if found[self.graph.number[self.graph.edges[e].source]] != _UNKNOWN)]
            for waits, extra in zip(required, optional, strict=True)
        ]
        return self._spread(again, [[] for _ in again], fallback=(required, found))

    def _spread(
        self,
        required: list[list[int]],
        optional: list[list[int]],
        fallback: tuple[list[list[int]], list[int]] | None = None,
    ) -> list[int]:
        graph, tokens = self.graph, self._tokens
        distance = [_UNKNOWN] * len(graph.names)
        missing = [len(waits) for waits in required]
        needed = set().union(*required) if required else set()
        any_of = {e for index, extra in enumerate(optional) if not required[index] for e in extra}
        queue: deque[int] = deque()

        def reach(index: int, steps: int) -> None:
            if distance[index] == _UNKNOWN:
                distance[index] = steps
                queue.append(index)

        for index, running in enumerate(self._running):
            if running or (not self._begun and index in self._entry):
                reach(index, 0)
        for index in range(len(graph.names)):
            if distance[index] == _UNKNOWN and self._ready(index, missing[index]):
                reach(index, 1)
        while True:
            while queue:
                source = queue.popleft()
                for e in graph.out_of[source]:
                    edge = graph.edges[e]
                    target = graph.number[edge.target]
                    if distance[target] != _UNKNOWN or self._used_up(e):
                        continue
                    if not self._is_and[target] or edge.is_loop or e in any_of:
                        reach(target, distance[source] + 1)
                    elif e in needed:
                        missing[target] -= 1
                        if missing[target] == 0:
                            reach(target, distance[source] + 1)
            stuck = self._untie(distance, required, tokens, fallback) if fallback is not None else None
            if stuck is None:
                return distance
            reach(*stuck)

    def _untie(
        self,
        distance: list[int],
        required: list[list[int]],
        tokens: list[int],
        fallback: tuple[list[list[int]], list[int]],
    ) -> tuple[int, int] | None:
        """An AND join that waits for a node which only it leads to: what arrived before counts after all."""
        first_required, first = fallback
        best: tuple[int, int] | None = None
        for index, steps in enumerate(distance):
            if steps != _UNKNOWN or first[index] == _UNKNOWN or not self._is_and[index]:
                continue
            sources = {e: distance[self.graph.number[self.graph.edges[e].source]] for e in required[index]}
            if any(sources[e] == _UNKNOWN for e in first_required[index]):
                continue
            known = [value for value in sources.values() if value != _UNKNOWN]
            if not known and not any(tokens[e] for e in self.graph.into[index]):
                continue
            candidate = (max(known, default=0) + 1, index)
            best = candidate if best is None else min(best, candidate)
        return None if best is None else (best[1], best[0])

    def _ready(self, index: int, missing: int) -> bool:
        """Whether nothing stands before the node's next visit."""
        if index in self._entry and self._begun:
            return True
        tokens = [e for e in self.graph.into[index] if self._tokens[e] and not self._used_up(e)]
        if not self._is_and[index]:
            return bool(tokens)
        loops = any(self.graph.edges[e].is_loop for e in tokens)
        return loops or (missing == 0 and any(not self.graph.edges[e].is_loop for e in tokens))

    def _waits(self, index: int) -> list[int]:
        """The edges an AND join still waits for, those apart whose source arrived in an earlier round."""
        if not self._is_and[index]:
            return []
        return [e for e in self._forward(index) if not self._arrived(e) and not self._stale[e]]

    def _optional(self) -> list[list[int]]:
        return [
            [e for e in self._forward(index) if not self._arrived(e) and self._stale[e]] if is_and else []
            for index, is_and in enumerate(self._is_and)
        ]

    def _forward(self, index: int) -> list[int]:
        return [e for e in self.graph.into[index] if not self.graph.edges[e].is_loop]

    def _arrived(self, e: int) -> bool:
        source = self.graph.number[self.graph.edges[e].source]
        expected = self._expected(source)
        if expected is not None:
            return self._tokens[e] > 0 and self._tokens[e] + self._lost[source] >= expected
        return self._tokens[e] > 0 and not self._running[source]

    def _expected(self, index: int) -> int | None:
        for e in self.graph.into[index]:
            times = self.graph.edges[e].times
            if times is not None:
                return int(times) if times.isdigit() else self._counts.get(times)
        return None

    def _fans(self, index: int) -> bool:
        return any(self.graph.edges[e].times is not None for e in self.graph.into[index])

    def _used_up(self, e: int) -> bool:
        bound = self.graph.edges[e].at_most
        return bound is not None and self._taken[e] >= bound

    def _leave_entries(self, index: int) -> None:
        """Entries that lead to a step which has begun are behind the run."""
        self._entry.discard(index)
        seen, stack = {index}, [index]
        while self._entry and stack:
            for e in self.graph.into[stack.pop()]:
                source = self.graph.number[self.graph.edges[e].source]
                if source not in seen:
                    seen.add(source)
                    stack.append(source)
                    if not self._running[source]:
                        self._entry.discard(source)

    def _consume(self, index: int) -> None:
        """Take the tokens by which a step began."""
        into = self.graph.into[index]
        held = [e for e in into if self._tokens[e]]
        if not held:
            held = self._pass_barriers(index)
        forward = [e for e in held if not self.graph.edges[e].is_loop]
        if self._is_and[index] and forward:
            for e in forward:
                self._tokens[e], self._stale[e] = 0, True
                self._taken[e] += 1
            for e in self._forward(index):
                self._lost[self.graph.number[self.graph.edges[e].source]] = 0
            return
        if not held:
            running = [e for e in into if self._running[self.graph.number[self.graph.edges[e].source]]]
            if running:
                self._taken[running[-1]] += 1
            return
        e = min(held, key=lambda edge: (self._used_up(edge), edge))
        expected = self._expected(index) if self.graph.edges[e].times is not None else None
        if self._instances[index] == 0:
            self._taken[e] += 1
        if expected is not None and self._instances[index] + 1 < expected:
            self._instances[index] += 1  # more instances come by the same token
            return
        self._instances[index] = 0
        self._tokens[e] = 0
        for other in self.graph.out_of[self.graph.number[self.graph.edges[e].source]]:
            target = self.graph.number[self.graph.edges[other].target]
            if other != e and not self._is_and[target] and not self._parallel(index, target):
                self._tokens[other] = 0  # the way not taken

    def _pass_barriers(self, index: int) -> list[int]:
        """A barrier is not always reported: a step behind one that is ready has passed it."""
        for e in self.graph.into[index]:
            source = self.graph.number[self.graph.edges[e].source]
            name = self.graph.names[source]
            if self.graph.nodes[name] == BARRIER and not self._running[source]:
                waits = self._waits(source)
                if self._ready(source, len(waits)):
                    self.barrier(name)
                    return [e]
        return []

    def _parallel(self, one: int, other: int) -> bool:
        """Whether two ways from one node meet again at an AND join, on different edges: then both are taken."""
        mine, theirs = self._joins_ahead(one), self._joins_ahead(other)
        return any(mine[j] - theirs[j] and theirs[j] - mine[j] for j in mine.keys() & theirs.keys())

    def _joins_ahead(self, index: int) -> dict[int, set[int]]:
        """AND joins ahead without taking a loop: by which of their edges they are reached from here."""
        joins: dict[int, set[int]] = {}
        seen, stack = {index}, [index]
        while stack:
            for e in self.graph.out_of[stack.pop()]:
                if self.graph.edges[e].is_loop:
                    continue
                target = self.graph.number[self.graph.edges[e].target]
                if self._is_and[target]:
                    joins.setdefault(target, set()).add(e)
                if target not in seen:
                    seen.add(target)
                    stack.append(target)
        return joins
