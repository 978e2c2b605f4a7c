"""What `BlockPool.touch` does, for all blocks of a call in one loop: a call a block costs more than all else of ours.

`takeover` binds it on the one pool that has a `RankedQueue`. It does what `RankedQueue.remove` would, block by block,
and falls back on that for all but the plain case: a prompt is touched from its head on, and its head is the end of a
segment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kvpolicy.adapters.vllm.queue import Block, RankedQueue
from kvpolicy.adapters.vllm.segment import Segment

Touch = Callable[[Sequence[Block]], None]


def touching(queue: RankedQueue, stock: Touch) -> Touch:
    """stock: the pool's own, for null blocks, as versions differ in what they count for these, and after a rescue."""
    state = queue.order.state

    def touch(blocks: Sequence[Block]) -> None:
        gone = 0
        block: Block = None
        rest = iter(blocks)
        try:
            for block in rest:
                if block.ref_cnt or block.is_null:
                    if block.is_null:
                        stock([block])
                    else:
                        block.ref_cnt += 1
                    continue
                i = block.block_id
                segment = state[i]
                if type(segment) is Segment:
                    queued = segment.queued
                    last = queued.pop()
                    if last == i:
                        run: Any = segment.run
                        state[i] = run
                        gone += 1
                        block.ref_cnt = 1
                        if not queued:
                            segment.entry = None
                            rank = segment.rank
                            rank.void += 1
                            if rank.void > rank.room:
                                rank.sweep()
                            if run is not None and run.standing is segment:
                                run.standing = None
                            else:
                                segment.part()
                        continue
                    queued.append(last)
                queue.remove(block)
                block.ref_cnt += 1
                if queue.stock is not None:
                    stock(list(rest))
                    return
        except Exception as fault:
            queue.rescue(fault)  # by counts of references: a block counted already is not among the free ones
            stock([*(() if block.ref_cnt else (block,)), *rest])
            return
        queue.num_free_blocks -= gone

    return touch
