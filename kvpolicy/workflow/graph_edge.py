"""An edge of a workflow, and the words for its nodes and joins. `graph` is made of these."""

from __future__ import annotations

from dataclasses import dataclass

AND, OR = "and", "or"
AGENT, TOOL, BARRIER = "agent", "tool", "barrier"


@dataclass(frozen=True, slots=True)
class GraphEdge:
    """`source -> target`. times: how many instances of the target follow (a number, or a name told at run time).

    at_most: how often the edge may be taken in a run, None without bound. is_loop: declared as the closing edge of a
    loop, so an AND join does not wait for it. probability: of being taken, where known. calls: the target is a
    sub-agent that the source calls while it runs itself, as often as it likes; the end of the source leads nowhere by
    it. group: edges out of one node that bear the same one are taken together.
    """

    source: str
    target: str
    times: str | None = None
    at_most: int | None = None
    is_loop: bool = False
    probability: float | None = None
    calls: bool = False
    group: str | None = None

    def with_all_of(self, other: GraphEdge) -> GraphEdge:
        """An edge given twice is one edge with all that was said of it (a `loop` line declares its edge too); where
        both say something, `other` counts."""
        return GraphEdge(
            self.source,
            self.target,
            other.times if other.times is not None else self.times,
            other.at_most if other.at_most is not None else self.at_most,
            other.is_loop or self.is_loop,
            other.probability if other.probability is not None else self.probability,
            other.calls or self.calls,
            other.group if other.group is not None else self.group,
        )
