"""Where one run stands in its graph: what runs, what has arrived where, how often an edge was taken.

`standing` feeds a `Position` with the starts and ends of steps; `stepwise` keeps the distances, which are worked out
when somebody asks for them.
"""

from __future__ import annotations

from kvpolicy.policy.model import NEVER
from kvpolicy.workflow.distance import UNKNOWN
from kvpolicy.workflow.graph import BARRIER, Graph
from kvpolicy.workflow.marks import Marks
from kvpolicy.workflow.stepwise import Stepwise


class Position(Marks):
    """One run in its graph.

    A step that ends leaves a token on each edge out of it; a step that starts takes the token it came by. An AND join
    takes the tokens of all its predecessors. A predecessor that arrived in an earlier round and cannot come again does
    not keep an AND join waiting. `taken`: how often each edge was taken.
    """

    __slots__ = ("_instances", "_stepwise", "_visited", "taken")

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self._instances = [0] * len(graph.names)  # started in this round, of a fan-out whose count is known
        self._visited = [False] * len(graph.names)
        self.taken = [0] * len(graph.edges)
        self._stepwise = Stepwise()

    def copy(self) -> Position:
        """The same position, for itself; its distances are worked out when somebody asks."""
        other = Position.__new__(Position)
        other.graph, other.dirty = self.graph, set()
        other.take_marks(self)
        other._instances, other._visited = self._instances.copy(), self._visited.copy()
        other.taken = self.taken.copy()
        other._stepwise = Stepwise()
        return other

    # --- what happens -------------------------------------------------------------------------------------

    def start(self, node: str) -> None:
        """A step of `node` began. One that runs already is a repeat, unless its edge fans out."""
        index = self.graph.find(node)
        if index is None or (self.running[index] and not self._fans(index)):
            return
        if not self.begun:
            self.begun = True
            self.dirty |= self.entry
        self._leave_entries(index)
        self._consume(index)
        if not self.running[index] and not self._fans(index):
            for e in self.graph.out_of[index]:  # a new round: what it sent before is past
                if self.tokens[e]:
                    self.make_stale(e)
        self._run(index, self.running[index] + 1)

    def end(self, node: str) -> None:
        """A step of `node` ended. If none runs it is a repeat, unless the node was due: then its start was lost."""
        index = self.graph.find(node)
        if index is None:
            return
        if not self.running[index]:
            if self._visited[index] and self._steps(index) != 1:
                return
            self.start(node)
        self._visited[index] = True
        self._run(index, self.running[index] - 1)
        for e in self.graph.out_of[index]:
            if not self.graph.edges[e].calls:
                self.set_tokens(e, self.tokens[e] + 1)

    def barrier(self, node: str) -> None:
        """An AND join was reached; where nothing runs at it, it is passed at once."""
        index = self.graph.find(node)
        if index is not None and not self.running[index]:
            self.start(node)
            self.end(node)

    def lost(self, node: str, ran: bool = True) -> None:
        """One instance of a fan-out will not arrive. ran: it was running."""
        index = self.graph.find(node)
        if index is not None:
            self._lose(index, self.lost_at[index] + 1)
            if ran:
                self._run(index, max(0, self.running[index] - 1))

    def found(self, node: str, runs: bool = True) -> None:
        """An instance that was lost is back. runs: it goes on running."""
        index = self.graph.find(node)
        if index is not None:
            self._lose(index, max(0, self.lost_at[index] - 1))
            if runs:
                self._run(index, self.running[index] + 1)

    def finish(self) -> None:
        """The run is over: no way leads anywhere any more."""
        fresh = Position(self.graph)
        fresh.begun, fresh.entry = True, set()
        self.take_marks(fresh)
        self._stepwise = Stepwise()

    def fan_out(self, name: str, count: int) -> None:
        """The number behind `* name` is known now."""
        if self.counts.get(name) != count:
            self.counts[name] = count
            for index, times in enumerate(self.graph.times):
                if times == name:
                    self.dirty.update(self.graph.targets[e] for e in self.graph.out_of[index])

    def fan_out_behind(self, node: str, count: int) -> None:
        """The number behind every `*` out of `node` is known now."""
        index = self.graph.find(node)
        for e in () if index is None else self.graph.out_of[index]:
            times = self.graph.edges[e].times
            if times is not None and not times.isdigit():
                self.fan_out(times, count)

    # --- what follows -------------------------------------------------------------------------------------

    def steps(self, node: str) -> float | None:
        """Steps until `node` may run: 0 while it runs, NEVER where no way leads there; None for an unknown node."""
        index = self.graph.find(node)
        return None if index is None else self._steps(index)

    def all_steps(self) -> dict[str, float]:
        """Steps of every node."""
        return {name: self._steps(index) for index, name in enumerate(self.graph.names)}

    def runs(self, node: str) -> bool:
        """Whether a step of `node` runs."""
        index = self.graph.find(node)
        return index is not None and self.running[index] > 0

    def fans(self, node: str) -> bool:
        """Whether several instances of `node` may run at once."""
        index = self.graph.find(node)
        return index is not None and self._fans(index)

    def instances(self, node: str) -> int | None:
        """How many instances of `node` the edges into it ask for, where that is known."""
        index = self.graph.find(node)
        return None if index is None else self.expected(index)

    def _steps(self, index: int) -> float:
        steps = self._stepwise.distances(self)[index]
        return NEVER if steps == UNKNOWN else steps

    def _fans(self, index: int) -> bool:
        return self.graph.times[index] is not None

    # --- marks --------------------------------------------------------------------------------------------

    def _run(self, index: int, steps: int) -> None:
        if bool(self.running[index]) != bool(steps):
            self.dirty.add(index)
        self.running[index] = steps

    def _lose(self, index: int, instances: int) -> None:
        self.lost_at[index] = instances
        self.dirty.update(self.graph.targets[e] for e in self.graph.out_of[index])

    def _take(self, e: int) -> None:
        """Edge `e` was taken once more."""
        self.taken[e] += 1
        bound = self.graph.edges[e].at_most
        if bound is not None and self.taken[e] >= bound:
            self.used_up.add(e)
            self.dirty.add(self.graph.targets[e])

    def _leave_entries(self, index: int) -> None:
        """Entries that lead to a step which has begun are behind the run."""
        self._leave_entry(index)
        seen, stack = {index}, [index]
        while self.entry and stack:
            for e in self.graph.into[stack.pop()]:
                source = self.graph.sources[e]
                if source not in seen:
                    seen.add(source)
                    stack.append(source)
                    if not self.running[source]:
                        self._leave_entry(source)

    def _leave_entry(self, index: int) -> None:
        if index in self.entry:
            self.entry.discard(index)
            self.dirty.add(index)

    def _consume(self, index: int) -> None:
        """Take the tokens by which a step began."""
        graph = self.graph
        held = [e for e in graph.into[index] if self.tokens[e]] or self._pass_barriers(index)
        forward = [e for e in held if not graph.is_loop[e]]
        if graph.waits_for_all[index] and forward:
            for e in forward:
                self.make_stale(e)
                self._take(e)
            for e in graph.forward[index]:
                self._lose(graph.sources[e], 0)
            return
        if not held:
            running = [e for e in graph.into[index] if self.running[graph.sources[e]]]
            if running:
                self._take(running[-1])
            return
        e = min(held, key=lambda edge: (edge in self.used_up, edge))
        expected = self.expected(index) if graph.edges[e].times is not None else None
        if self._instances[index] == 0:
            self._take(e)
        if expected is not None and self._instances[index] + 1 < expected:
            self._instances[index] += 1  # more instances come by the same token
            return
        self._instances[index] = 0
        self.set_tokens(e, 0)
        for other in graph.out_of[graph.sources[e]]:
            target = graph.targets[other]
            if self.tokens[other] and not graph.waits_for_all[target] and not graph.ways.together(e, other):
                self.set_tokens(other, 0)  # the way not taken

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
