"""SGLang's strategies of its radix cache (`--radix-eviction-policy`): which leaf of the tree goes first.

Source: sgl-project/sglang, python/sglang/srt/mem_cache/evict_policy.py and radix_cache.py, as of autumn 2026. A leaf
leaves as a whole, so more may leave than was asked for. A node counts its uses from 1, when it came; both halves of a
split node keep the count. `priority` is one number a request (here its attribute `priority`, 0 where a trace has none),
of a shared node the highest; without such numbers it is `lru`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from kvpolicy.simulate.baselines.tree import Key, Node, Order, RadixCache, Rule
from kvpolicy.simulate.trace import Call

PROTECTED_USES = 2  # slru: from so many uses on a node goes after all others


class Strategy(Order):
    """One queue, ordered by `rank`."""

    def __init__(self, rank: Callable[[Node], Key]) -> None:
        self._rank = rank

    def place(self, node: Node) -> Key:
        """Its place in the one queue."""
        return self._rank(node)


class Priority(Order):
    """The request's own number first, then the least recently used."""

    def place(self, node: Node) -> Key:
        """Its place in the one queue."""
        return (node.note or 0, node.used)

    def served(self, cache: RadixCache, call: Call, path: list[Node]) -> None:
        """Every node of the path has at least the request's number."""
        said = call.request.attributes.get("priority")
        number = said if isinstance(said, int) else 0
        for node in path:
            node.note = max(node.note or number, number)


_RANKS: dict[str, Callable[[Node], Key]] = {
    "lru": lambda node: (node.used,),
    "lfu": lambda node: (node.uses, node.used),
    "fifo": lambda node: (node.created,),
    "mru": lambda node: (-node.used,),
    "filo": lambda node: (-node.created,),
    "slru": lambda node: (node.uses >= PROTECTED_USES, node.used),
}


def _cache(rank: Callable[[Node], Key], capacity: int) -> Rule:
    return RadixCache(capacity, Strategy(rank), whole=True)


def _by_priority(capacity: int) -> Rule:
    return RadixCache(capacity, Priority(), whole=True)


SGLANG: dict[str, Callable[[int], Rule]] = {
    **{f"sglang-{name}": partial(_cache, rank) for name, rank in _RANKS.items()},
    "sglang-priority": _by_priority,
}
