"""A test model of vLLM's block pool: one queue, one table of hashes, one record a block. Shares no code with the pool.

Written from the description of v1: allocation pops the head and forgets its hash, a hit leaves the queue, a release
walks the block table backwards, hash-less blocks are put in front as a list, hashed ones appended.
"""

from __future__ import annotations

from collections import OrderedDict


class StockPool:
    """`blocks` usable blocks, ids from 1."""

    def __init__(self, blocks: int) -> None:
        self.queue: OrderedDict[int, None] = OrderedDict((block, None) for block in range(1, blocks + 1))
        self.hash_of: dict[int, object] = {}
        self.block_of: dict[object, int] = {}
        self.refs: dict[int, int] = dict.fromkeys(range(1, blocks + 1), 0)
        self.evicted: list[object] = []

    def allocate(self, hashes: list[object]) -> tuple[list[int], int]:
        """Block table and number of hits; a request longer than what is free keeps its head."""
        table = []
        for block_hash in hashes:
            if block_hash not in self.block_of:
                break
            table.append(self.block_of[block_hash])
        for block in table:
            if self.refs[block] == 0:
                del self.queue[block]
            self.refs[block] += 1
        hits = len(table)
        for block_hash in hashes[hits:]:
            block = self.pop()
            if block is None:
                break
            self.name(block, block_hash)
            table.append(block)
        return table, hits

    def pop(self) -> int | None:
        """The head of the queue, without its hash."""
        if not self.queue:
            return None
        block, _ = self.queue.popitem(last=False)
        if block in self.hash_of:
            self.unname(block)
        self.refs[block] = 1
        return block

    def name(self, block: int, block_hash: object) -> None:
        assert block_hash not in self.block_of, "the histories compared have no duplicates"
        self.hash_of[block] = block_hash
        self.block_of[block_hash] = block

    def unname(self, block: int) -> None:
        block_hash = self.hash_of.pop(block)
        del self.block_of[block_hash]
        self.evicted.append(block_hash)

    def free(self, table: list[int]) -> None:
        """A whole block table, tail first."""
        without: list[int] = []
        for block in reversed(table):
            self.refs[block] -= 1
            if self.refs[block] == 0:
                if block in self.hash_of:
                    self.queue[block] = None
                else:
                    without.append(block)
        self.queue = OrderedDict.fromkeys([*without, *self.queue])

    def evict(self, count: int) -> None:
        """The first `count` cached blocks of the queue lose their hash and keep their place."""
        for block in [block for block in self.queue if block in self.hash_of][:count]:
            self.unname(block)
