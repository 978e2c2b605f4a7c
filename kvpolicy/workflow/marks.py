"""What is marked on a run's graph: running steps, tokens on edges, loops used up.

`position` moves the marks by what happens; `distance`, `stepwise`, `ahead` and `chance` read them. `dirty` are the
nodes whose distance may have changed since somebody last asked: whoever changes a mark adds them.
"""

from __future__ import annotations

from kvpolicy.workflow.graph import Graph


class Marks:
    """The marks of one run.

    By node: `running`, steps that run; `lost_at`, instances of a fan-out that will not arrive. `entry`: entries that
    have not begun. By edge: `tokens`, what a step that ended left; `stale`, what arrived in an earlier round of the AND
    join behind the edge. `used_up`: edges that may not be taken again. counts: of fan-outs, by the name after `*`.
    """

    __slots__ = ("begun", "counts", "dirty", "entry", "graph", "lost_at", "running", "stale", "tokens", "used_up")

    def __init__(self, graph: Graph) -> None:
        nodes, edges = len(graph.names), len(graph.edges)
        self.graph = graph
        self.running = [0] * nodes
        self.lost_at = [0] * nodes
        self.tokens = [0] * edges
        self.stale = [False] * edges
        self.used_up = {e for e, edge in enumerate(graph.edges) if edge.at_most == 0}
        self.entry = set(graph.entries)
        self.counts: dict[str, int] = {}
        self.begun = False
        self.dirty: set[int] = set()

    def take_marks(self, other: Marks) -> None:
        """The marks of `other`, copied; `dirty` is left to who takes them."""
        self.running, self.lost_at = other.running.copy(), other.lost_at.copy()
        self.tokens, self.stale = other.tokens.copy(), other.stale.copy()
        self.used_up, self.entry, self.counts = other.used_up.copy(), other.entry.copy(), other.counts.copy()
        self.begun = other.begun

    def set_tokens(self, e: int, tokens: int) -> None:
        """So many tokens lie on edge `e`."""
        if self.tokens[e] != tokens:
            self.tokens[e] = tokens
            self.dirty.add(self.graph.targets[e])

    def make_stale(self, e: int) -> None:
        """What lies on edge `e` belongs to a round that is over."""
        self.tokens[e], self.stale[e] = 0, True
        self.dirty.add(self.graph.targets[e])

    def expected(self, index: int) -> int | None:
        """How many instances of a node are to come, where it fans out and that is known."""
        times = self.graph.times[index]
        if times is None:
            return None
        return int(times) if times.isdigit() else self.counts.get(times)

    def arrived(self, e: int) -> bool:
        """Whether the source of edge `e` has arrived since the AND join last ran; of a known fan-out, all of it."""
        expected = self.expected(self.graph.sources[e])
        if expected is not None:
            return self.tokens[e] > 0 and self.tokens[e] + self.lost_at[self.graph.sources[e]] >= expected
        return self.tokens[e] > 0  # how many come is not known; one that still runs is no farther than the next step

    def waits_for(self, index: int) -> tuple[list[int], list[int]]:
        """Edges by which an AND join still waits: those it needs, and those that arrived in an earlier round, which it
        needs only if they can come again."""
        required: list[int] = []
        again: list[int] = []
        for e in self.graph.forward[index]:
            if not self.arrived(e):
                (again if self.stale[e] else required).append(e)
        return required, again

    def ready(self, index: int, missing: int) -> bool:
        """Whether nothing stands before the node's next visit; `missing`: what an AND join still waits for."""
        if self.begun and index in self.entry:
            return True
        graph, used_up = self.graph, self.used_up
        if not graph.waits_for_all[index]:
            return any(self.tokens[e] and e not in used_up for e in graph.into[index])
        tokens = [e for e in graph.into[index] if self.tokens[e] and e not in used_up]
        loops = any(graph.is_loop[e] for e in tokens)
        return loops or (missing == 0 and any(not graph.is_loop[e] for e in tokens))
