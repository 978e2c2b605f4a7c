"""Our queue and two methods in the place of a block pool's own: put there at the first directive, back at a fault.

Nothing of vLLM's is changed but attributes of that one pool. `keeper` makes one when ranks begin to count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kvpolicy.adapters.vllm.queue import RankedQueue
from kvpolicy.adapters.vllm.touch import touching


class Takeover:
    """pool: vLLM's. queue: ours, with the free blocks of the pool's own, in its order."""

    def __init__(self, pool: Any) -> None:
        self.queue = RankedQueue(pool.blocks, pool.free_block_queue.get_all_free_blocks())
        self._pool = pool

    def begin(
        self, evicted: Callable[[Iterable[int]], None], rescues: Callable[[list[int], BaseException], Any]
    ) -> None:
        """From now on blocks leave by rank. evicted: told of blocks that vLLM takes out of the prefix cache. rescues:
        see `RankedQueue`."""
        pool, queue = self._pool, self.queue
        evict, touch = pool.evict_blocks, pool.touch

        def evict_and_tell(block_ids: set[int]) -> None:
            evict(block_ids)
            evicted(block_ids)

        queue.rescues = rescues
        pool.free_block_queue = queue
        pool.evict_blocks = evict_and_tell
        if getattr(touch, "__qualname__", "") == "BlockPool.touch" and pool.metrics_collector is None:
            pool.touch = touching(queue, touch)

    def end(self, ids: Sequence[int] | None) -> Any:
        """vLLM's own queue and methods again. ids: the free blocks in order; None: whichever no request refers to, the
        surest there is between two calls of the pool. Returns the queue."""
        from vllm.v1.core.kv_cache_utils import FreeKVCacheBlockQueue

        pool = self._pool
        for name in ("touch", "evict_blocks"):
            pool.__dict__.pop(name, None)
        if pool.free_block_queue is self.queue:
            if ids is None:
                ids = [block.block_id for block in pool.blocks if block.ref_cnt == 0 and not block.is_null]
            pool.free_block_queue = FreeKVCacheBlockQueue([pool.blocks[i] for i in ids])
        return pool.free_block_queue
