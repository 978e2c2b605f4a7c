"""vLLM's free-block queue with another order: the whole interface of `FreeKVCacheBlockQueue`, over `Ranked`.

It stands in a `BlockPool` from the first directive on (`takeover`), and takes over the blocks that the stock queue
has, in its order. Here are vLLM's blocks, its count of free ones and its faults; the order itself is `ranked`'s.

INVARIANT: no exception of ours reaches a step. Where one is raised in here, every free block goes on in a stock queue,
in an order that is right as far as it can still be told, and the call that met it is answered from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kvpolicy.adapters.vllm.ranked import Ranked

TAKEN_OVER = 512  # ids of a segment made of the stock queue: whose they are is found out later, and carves it up

Block = Any  # vllm.v1.core.kv_cache_utils.KVCacheBlock


class RankedQueue:
    """blocks: all blocks of the pool, by id. free: those that are free, in order. order: ids of the free ones. stock:
    the queue that goes on in its place once something broke here, made by `rescues` (free ids in order, the fault).

    num_free_blocks counts every free block, whatever its rank. INVARIANT: nothing ever waits for a protected block.
    """

    def __init__(self, blocks: Sequence[Block], free: Sequence[Block]) -> None:
        self.num_free_blocks = len(free)
        self.order = Ranked(len(blocks))
        self.stock: Any = None
        self.rescues: Callable[[list[int], BaseException], Any] | None = None
        self._blocks = blocks
        ids = [block.block_id for block in free]
        lead = next((n for n, block in enumerate(free) if block.block_hash is not None), len(ids))
        self.order.prepend(ids[:lead])
        self.order.append(ids[lead:], TAKEN_OVER)

    def popleft(self) -> Block:
        """The first block to leave. Raises ValueError where there is none, as the stock queue does."""
        if not self.num_free_blocks:
            raise ValueError("No free blocks available")
        return self.popleft_n(1)[0]

    def popleft_n(self, n: int) -> list[Block]:
        """The first `n`, which have to be there."""
        if n == 0:
            return []
        assert self.num_free_blocks >= n
        try:
            ids = self.order.pop(n)
        except Exception as fault:
            return self.rescue(fault).popleft_n(n)  # type: ignore[no-any-return]
        self.num_free_blocks -= n
        blocks = self._blocks
        return [blocks[i] for i in ids]

    def remove(self, block: Block) -> None:
        """Takes a block out of the middle. Raises RuntimeError for one that is not in the queue."""
        if self.stock is not None:
            self.stock.remove(block)
            return
        try:
            there = self.order.take(block.block_id)
        except Exception as fault:
            self.rescue(fault).remove(block)
            return
        if not there:
            raise RuntimeError(f"remove() called on an invalid block: {block}")
        self.num_free_blocks -= 1

    def append(self, block: Block) -> None:
        """One block, as the last of its rank."""
        self.append_n([block])

    def append_n(self, blocks: Sequence[Block]) -> None:
        """Released blocks, first to leave first: each stands behind those of its rank that are there."""
        if not blocks:
            return
        ids = [block.block_id for block in blocks]
        try:
            self.order.append(ids)
        except Exception as fault:
            self.rescue(fault, ids).append_n(blocks)
            return
        self.num_free_blocks += len(ids)

    def prepend_n(self, blocks: Sequence[Block]) -> None:
        """Blocks to reuse before all others, the first of them first."""
        if not blocks:
            return
        ids = [block.block_id for block in blocks]
        try:
            self.order.prepend(ids)
        except Exception as fault:
            self.rescue(fault, ids).prepend_n(blocks)
            return
        self.num_free_blocks += len(ids)

    def get_all_free_blocks(self) -> list[Block]:
        """Every free block, in the order in which they leave."""
        return list(self.iter_blocks_after(None))

    def iter_blocks_after(self, cursor: Block | None) -> Iterator[Block]:
        """Free blocks in the order in which they leave, those behind `cursor` alone where it is given. As in the stock
        queue nothing stands behind a block that is not in the queue."""
        if self.stock is not None:
            yield from self.stock.iter_blocks_after(cursor)
            return
        try:
            for i in self.order.after(None if cursor is None else cursor.block_id):
                cursor = self._blocks[i]
                yield cursor
        except Exception as fault:
            yield from self.rescue(fault).iter_blocks_after(cursor)

    # --- when something of ours breaks ------------------------------------------------------------------------------

    def members(self, arriving: Sequence[int] = ()) -> list[int]:
        """Ids of all free blocks, in order as far as it can be told. While blocks arrive, vLLM's counts of references
        already call more of them free than are in the queue; at other times they are what is surest."""
        if arriving:
            out = set(arriving)
            inside = [block.block_id for block in self._blocks if self.order.free(block.block_id)]
            inside = [i for i in inside if i not in out]
        else:
            inside = [block.block_id for block in self._blocks if block.ref_cnt == 0 and not block.is_null]
        try:
            order = {i: n for n, i in enumerate(self.order.after(None))}
        except Exception:
            order = {}
        return sorted(inside, key=lambda i: order.get(i, -1))

    def rescue(self, fault: BaseException, arriving: Sequence[int] = ()) -> Any:
        """The stock queue that goes on with every free block; `arriving` are not in it yet."""
        if self.stock is None:
            if self.rescues is None:
                raise fault
            self.stock = self.rescues(self.members(arriving), fault)
        return self.stock
