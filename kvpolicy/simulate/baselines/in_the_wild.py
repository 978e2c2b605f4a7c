"""The workload-aware order of "KVCache Cache in the Wild" (Wang et al., USENIX ATC 2025, arXiv 2506.02634).

The paper: the priority of a block is (probability that it is used again within the lifespan of blocks in the cache,
from its present age on; its offset in the prompt), where the times between uses are exponential, fitted for each
category of requests from what was seen lately; one LRU queue a category, whose heads are compared. A block deep in a
prompt goes before one near its head where the probabilities are the same.

Our reading where the paper leaves room: with p the share of uses that a further one followed and m their mean gap, the
probability at age a is p · (e^(−a/m) − e^(−(a+life)/m)). The category is the turn (1, 2, 3, more) and what the prompt
ends with (a tool's result or not); what was seen lately are the last 1,000 gaps of a category; life is the mean time
from last use to eviction, over the last 1,000. Until anything was seen: p = 0.5, m = life = 60 s.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable

from kvpolicy.simulate.baselines.tree import Key, Node, Order, RadixCache
from kvpolicy.simulate.trace import Call

LATELY = 1_000
_UNKNOWN_S = 60.0


class Seen:
    """What was seen of one category lately: gaps between uses, and how many uses there were for them."""

    __slots__ = ("again", "gaps", "total", "uses")

    def __init__(self) -> None:
        self.gaps: deque[float] = deque(maxlen=LATELY)
        self.total = 0.0
        self.again = 0.0
        self.uses = 0.0

    def use(self) -> None:
        """A use; the older ones weigh less and less."""
        fade = 1.0 - 1.0 / LATELY
        self.uses = self.uses * fade + 1.0
        self.again *= fade

    def gap(self, seconds: float) -> None:
        """One of them was followed by another after so long."""
        if len(self.gaps) == LATELY:
            self.total -= self.gaps[0]
        self.gaps.append(seconds)
        self.total += seconds
        self.again += 1.0

    def probability(self, age: float, life: float) -> float:
        """That a use comes between `age` and `age + life`."""
        if not self.gaps:
            share, mean = 0.5, _UNKNOWN_S
        else:
            share, mean = min(self.again / self.uses, 1.0), max(self.total / len(self.gaps), 1e-6)
        return share * (math.exp(-age / mean) - math.exp(-(age + life) / mean))


class InTheWild(Order):
    """Queues by category; `note` of a node is the category of its last use."""

    def __init__(self) -> None:
        self._seen: dict[Hashable, Seen] = {}
        self._lives: deque[float] = deque(maxlen=LATELY)
        self._life = 0.0

    def queue(self, node: Node) -> Hashable:
        """Its category."""
        category: Hashable = node.note
        return category

    def score(self, node: Node, now: float) -> Key:
        """The least likely to be used again leaves, the deepest first."""
        life = self._life / len(self._lives) if self._lives else _UNKNOWN_S
        return (self._of(node.note).probability(now - node.used_at, life), -node.start, node.used)

    def using(self, node: Node, call: Call, gap: float) -> None:
        """One gap more of the category that it was used by."""
        self._of(node.note).gap(gap)

    def served(self, cache: RadixCache, call: Call, path: list[Node]) -> None:
        """All its nodes are of the request's category now."""
        category = category_of(call)
        seen = self._of(category)
        for node in path:
            node.note = category
            seen.use()

    def evicted(self, node: Node, now: float) -> None:
        """How long it stood unused."""
        if len(self._lives) == LATELY:
            self._life -= self._lives[0]
        self._lives.append(now - node.used_at)
        self._life += now - node.used_at

    def _of(self, category: Hashable) -> Seen:
        seen = self._seen.get(category)
        if seen is None:
            seen = self._seen[category] = Seen()
        return seen


def category_of(call: Call) -> Hashable:
    """Turn and kind of input, as far as the trace tells."""
    request = call.request
    turn = request.attributes.get("turn")
    last = request.spans[-1].kind if request.spans else "turn"
    return (min(turn, 4) if isinstance(turn, int) else 0, last == "tool_result")
