"""Where one run stands in its graph: what runs, what has arrived where, how often a loop was taken.

`runs` feeds a `Position` with the starts and ends of steps; `distance.measure` says how far away each node is. Between
two changes the distances are computed once.
"""

from __future__ import annotations

from kvpolicy.policy.model import NEVER
from kvpolicy.workflow.distance import UNKNOWN, measure
from kvpolicy.workflow.graph import BARRIER, Graph


class Position:
    """One run in its graph.

    A step that ends leaves a token on each edge out of it; a step that starts takes the token it came by. An AND join
    takes the tokens of all its predecessors. A predecessor that arrived in an earlier round and cannot come again does
    not keep an AND join waiting.
    """

    __slots__ = (
        "_counts",
        "_distances",
        "_instances",
        "_lost",
        "_taken",
        "_visited",
        "begun",
        "entry",
        "graph",
        "running",
        "stale",
        "tokens",
        "used_up",
    )

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        nodes, edges = len(graph.names), len(graph.edges)
        self.running = [0] * nodes
        self._instances = [0] * nodes  # started in this round, of a fan-out whose count is known
        self._lost = [0] * nodes
        self._visited = [False] * nodes
        self.tokens = [0] * edges
        self.stale = [False] * edges  # arrived in an earlier round
        self._taken = [0] * edges
        self.used_up = {e for e, edge in enumerate(graph.edges) if edge.at_most == 0}  # loops done with
        self.entry = set(graph.entries)  # entries that have not begun
        self._counts: dict[str, int] = {}
        self.begun = False
        self._distances: list[int] | None = None

    # --- what happens -------------------------------------------------------------------------------------

    def start(self, node: str) -> None:
        """A step of `node` began. One that runs already is a repeat, unless its edge fans out."""
        index = self.graph.number.get(node)
        if index is None or (self.running[index] and not self._fans(index)):
            return
        self._distances = None
        self.begun = True
        self._leave_entries(index)
        self._consume(index)
        if not self.running[index] and not self._fans(index):
            for edge in self.graph.out_of[index]:  # a new round: what it sent before is past
                if self.tokens[edge]:
                    self.tokens[edge], self.stale[edge] = 0, True
        self.running[index] += 1

    def end(self, node: str) -> None:
        """A step of `node` ended. If none runs it is a repeat, unless the node was due: then its start was lost."""
        index = self.graph.number.get(node)
        if index is None:
            return
        if not self.running[index]:
            if self._visited[index] and self._steps(index) != 1:
                return
            self.start(node)
        self._distances = None
        self._visited[index] = True
        self.running[index] -= 1
        for edge in self.graph.out_of[index]:
            self.tokens[edge] += 1

    def barrier(self, node: str) -> None:
        """An AND join was reached; where nothing runs at it, it is passed at once."""
        index = self.graph.number.get(node)
        if index is not None and not self.running[index]:
            self.start(node)
            self.end(node)

    def lost(self, node: str) -> None:
        """One instance of a fan-out will not arrive."""
        index = self.graph.number.get(node)
        if index is not None:
            self._distances = None
            self._lost[index] += 1
            self.running[index] = max(0, self.running[index] - 1)

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

    def fans(self, node: str) -> bool:
        """Whether several instances of `node` may run at once."""
        index = self.graph.number.get(node)
        return index is not None and self._fans(index)

    def instances(self, node: str) -> int | None:
        """How many instances of `node` the edges into it ask for, where that is known."""
        index = self.graph.number.get(node)
        return None if index is None else self._expected(index)

    def _steps(self, index: int) -> float:
        if self._distances is None:
            self._distances = measure(self)
        steps = self._distances[index]
        return NEVER if steps == UNKNOWN else steps

    def ready(self, index: int, missing: int) -> bool:
        """Whether nothing stands before the node's next visit; `missing`: what an AND join still waits for."""
        if index in self.entry and self.begun:
            return True
        tokens = [e for e in self.graph.into[index] if self.tokens[e] and e not in self.used_up]
        if not self.graph.waits_for_all[index]:
            return bool(tokens)
        loops = any(self.graph.edges[e].is_loop for e in tokens)
        return loops or (missing == 0 and any(not self.graph.edges[e].is_loop for e in tokens))

    def arrived(self, e: int) -> bool:
        """Whether the source of edge `e` has arrived since the AND join last ran; of a known fan-out, all of it."""
        source = self.graph.sources[e]
        expected = self._expected(source)
        if expected is not None:
            return self.tokens[e] > 0 and self.tokens[e] + self._lost[source] >= expected
        return self.tokens[e] > 0  # how many come is not known; one that still runs is no farther than the next step

    def _expected(self, index: int) -> int | None:
        times = self.graph.times[index]
        if times is None:
            return None
        return int(times) if times.isdigit() else self._counts.get(times)

    def _fans(self, index: int) -> bool:
        return self.graph.times[index] is not None

    def _take(self, e: int) -> None:
        """Edge `e` was taken once more."""
        self._taken[e] += 1
        bound = self.graph.edges[e].at_most
        if bound is not None and self._taken[e] >= bound:
            self.used_up.add(e)

    def _leave_entries(self, index: int) -> None:
        """Entries that lead to a step which has begun are behind the run."""
        self.entry.discard(index)
        seen, stack = {index}, [index]
        while self.entry and stack:
            for e in self.graph.into[stack.pop()]:
                source = self.graph.sources[e]
                if source not in seen:
                    seen.add(source)
                    stack.append(source)
                    if not self.running[source]:
                        self.entry.discard(source)

    def _consume(self, index: int) -> None:
        """Take the tokens by which a step began."""
        into = self.graph.into[index]
        held = [e for e in into if self.tokens[e]]
        if not held:
            held = self._pass_barriers(index)
        forward = [e for e in held if not self.graph.edges[e].is_loop]
        if self.graph.waits_for_all[index] and forward:
            for e in forward:
                self.tokens[e], self.stale[e] = 0, True
                self._take(e)
            for e in self.graph.forward[index]:
                self._lost[self.graph.sources[e]] = 0
            return
        if not held:
            running = [e for e in into if self.running[self.graph.sources[e]]]
            if running:
                self._take(running[-1])
            return
        e = min(held, key=lambda edge: (edge in self.used_up, edge))
        expected = self._expected(index) if self.graph.edges[e].times is not None else None
        if self._instances[index] == 0:
            self._take(e)
        if expected is not None and self._instances[index] + 1 < expected:
            self._instances[index] += 1  # more instances come by the same token
            return
        self._instances[index] = 0
        self.tokens[e] = 0
        for other in self.graph.out_of[self.graph.sources[e]]:
            target = self.graph.targets[other]
            if other != e and not self.graph.waits_for_all[target] and not self._parallel(index, target):
                self.tokens[other] = 0  # the way not taken

    def _pass_barriers(self, index: int) -> list[int]:
        """A barrier is not always reported: a step behind one that is ready has passed it."""
        for e in self.graph.into[index]:
            source = self.graph.sources[e]
            name = self.graph.names[source]
            if self.graph.nodes[name] == BARRIER and not self.running[source]:
                waits = sum(not self.arrived(e) and not self.stale[e] for e in self.graph.forward[source])
                if self.ready(source, waits):
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
                target = self.graph.targets[e]
                if self.graph.waits_for_all[target]:
                    joins.setdefault(target, set()).add(e)
                if target not in seen:
                    seen.add(target)
                    stack.append(target)
        return joins
