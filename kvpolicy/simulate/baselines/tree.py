"""A radix tree of cached prefixes in which only leaves leave, with any order of eviction: what rules of others run on.

A node is consecutive blocks of one prompt. A request matches its leading nodes (the last one is split where they part),
room is made from leaves that it does not use, and the rest of it becomes one new leaf. `Order` decides which leaf goes:
leaves stand in queues, each in an order that does not change while nobody uses them, and the heads of the queues are
compared. Unlike `kvpolicy.pool` it knows no policy, claims or tiers; nothing but comparisons is built on it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from heapq import heappop, heappush
from typing import Any, Protocol

from kvpolicy.simulate.trace import BlockId, Call

Key = tuple[Any, ...]


class Node:
    """Blocks `start … start + len(blocks)` of a prompt. used: number of the request that used it last; used_at: when;
    created: the request that brought it in; uses: how often it was asked for, that one included; note: the order's."""

    __slots__ = (
        "blocks",
        "children",
        "created",
        "note",
        "parent",
        "queue",
        "start",
        "ticket",
        "used",
        "used_at",
        "uses",
    )

    def __init__(self, blocks: list[BlockId], start: int, parent: Node | None, number: int, at: float) -> None:
        self.blocks = blocks
        self.start = start
        self.parent = parent
        self.children: dict[BlockId, Node] = {}
        self.created = self.used = number
        self.used_at = at
        self.uses = 1
        self.note: Any = None
        self.ticket = 0
        self.queue: Hashable = None


class Order:
    """Which leaf leaves first. This one: the least recently used, the deepest of them first."""

    def queue(self, node: Node) -> Hashable:
        """The queue that a leaf stands in."""
        return 0

    def place(self, node: Node) -> Key:
        """Its place there, the smallest first; it may change only when the node is used or put anew."""
        return (node.used, -node.start)

    def score(self, node: Node, now: float) -> Key:
        """What the heads of the queues are compared by, the smallest leaves."""
        return self.place(node)

    def due(self, now: float) -> Iterable[Node]:
        """Nodes whose place changed by the passing of time; they are put anew."""
        return ()

    def using(self, node: Node, call: Call, gap: float) -> None:
        """A resident node is used again, `gap` seconds after the last time; before its fields change."""

    def served(self, cache: RadixCache, call: Call, path: list[Node]) -> None:
        """A request is over; path: its nodes, head first."""

    def evicted(self, node: Node, now: float) -> None:
        """A node, or its tail, left."""


class Rule(Protocol):
    """A cache that sees whole calls."""

    evictions: int

    def serve(self, call: Call) -> int:
        """One call; its hits in blocks."""
        ...


class RadixCache:
    """`capacity` blocks. whole: a leaf leaves as a whole, as in SGLang, else only as many blocks as room is needed
    for, from its tail. A request longer than the cache keeps its head."""

    def __init__(self, capacity: int, order: Order, whole: bool) -> None:
        self.capacity = capacity
        self.order = order
        self.evictions = 0
        self.used = 0
        self._whole = whole
        self._root = Node([], 0, None, 0, 0.0)
        self._queues: dict[Hashable, list[tuple[Key, int, Node]]] = {}
        self._tickets = 0
        self._number = 0

    def serve(self, call: Call) -> int:
        """One call; its hits in blocks."""
        self._number += 1
        now, order = call.at, self.order
        hashes = list(call.hashes[: self.capacity])
        for node in order.due(now):
            self.put(node)
        path, hits = self._match(hashes, call)
        missing = len(hashes) - hits
        if missing:
            self._make_room(missing, now)
            parent = path[-1] if path else self._root
            leaf = Node(hashes[hits:], hits, parent, self._number, now)
            parent.children[leaf.blocks[0]] = leaf
            self.used += missing
            path.append(leaf)
        order.served(self, call, path)
        for node in path:
            if not node.children:
                self.put(node)
        return hits

    def put(self, node: Node) -> None:
        """The node stands in its queue by what is known of it now; only a leaf may."""
        if node.children or node.parent is None:
            return
        self._tickets += 1
        node.ticket = self._tickets
        node.queue = self.order.queue(node)
        heappush(self._queues.setdefault(node.queue, []), (self.order.place(node), node.ticket, node))

    def split(self, node: Node, at: int) -> Node:
        """Divides a node before its block `at`. Returns the new first half; `node` stays the end."""
        head = Node(node.blocks[:at], node.start, node.parent, node.created, node.used_at)
        head.used, head.uses, head.note = node.used, node.uses, node.note
        head.children = {node.blocks[at]: node}
        assert node.parent is not None
        node.parent.children[node.blocks[0]] = head
        node.parent = head
        node.blocks = node.blocks[at:]
        node.start += at
        return head

    def _match(self, hashes: list[BlockId], call: Call) -> tuple[list[Node], int]:
        at, node, path = 0, self._root, list[Node]()
        while at < len(hashes):
            child = node.children.get(hashes[at])
            if child is None:
                break
            same = _common(child.blocks, hashes, at)
            if same < len(child.blocks):
                child = self.split(child, same)
            self.order.using(child, call, call.at - child.used_at)
            child.ticket = 0  # it is in use, and stands in no queue
            child.used, child.used_at = self._number, call.at
            child.uses += 1
            path.append(child)
            at += same
            node = child
        return path, at

    def _make_room(self, blocks: int, now: float) -> None:
        while self.capacity - self.used < blocks:
            node = self._first(now)
            assert node is not None, "a request fits once everything else has left"
            missing = blocks - (self.capacity - self.used)
            gone = len(node.blocks) if self._whole else min(len(node.blocks), missing)
            self.used -= gone
            self.evictions += gone
            self.order.evicted(node, now)
            if gone < len(node.blocks):
                del node.blocks[-gone:]
                return
            node.ticket = 0
            parent = node.parent
            assert parent is not None
            del parent.children[node.blocks[0]]
            node.parent = None
            if not parent.children and parent.used != self._number:
                self.put(parent)

    def _first(self, now: float) -> Node | None:
        best: Node | None = None
        least: Key = ()
        for name in list(self._queues):
            queue = self._queues[name]
            while queue and (queue[0][2].ticket != queue[0][1] or queue[0][2].children):
                heappop(queue)
            if not queue:
                del self._queues[name]
                continue
            node = queue[0][2]
            score = self.order.score(node, now)
            if best is None or score < least:
                best, least = node, score
        return best


def _common(blocks: list[BlockId], hashes: list[BlockId], at: int) -> int:
    """How many leading ones of `blocks` stand at `at`; by halving, as an id tells all before it."""
    low, high = 0, min(len(blocks), len(hashes) - at)
    while low < high:
        middle = (low + high + 1) // 2
        if blocks[middle - 1] == hashes[at + middle - 1]:
            low = middle
        else:
            high = middle - 1
    return low
