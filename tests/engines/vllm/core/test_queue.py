"""Without claims the ranked queue is the stock one, block for block, over random operations on real blocks."""

from __future__ import annotations

import inspect
import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vllm.v1.core.kv_cache_utils import FreeKVCacheBlockQueue, KVCacheBlock

from kvpolicy.adapters.vllm.queue import RankedQueue
from kvpolicy.adapters.vllm.touch import touching

HASHED = b"h"


def blocks_of(count: int, hashed: int) -> list[KVCacheBlock]:
    blocks = [KVCacheBlock(i) for i in range(count)]
    for block in blocks[count - hashed :]:
        block.set_block_hash(HASHED, 16)
    return blocks


class Pair:
    """The same blocks in both, and what is held of them."""

    def __init__(self, count: int, hashed: int) -> None:
        self.a, self.b = blocks_of(count, hashed), blocks_of(count, hashed)
        self.stock = FreeKVCacheBlockQueue(list(self.a))
        self.ours = RankedQueue(self.b, list(self.b))
        self.touch = touching(self.ours, self._stock_touch)
        self.held: list[int] = []

    def _stock_touch(self, blocks: Sequence[KVCacheBlock]) -> None:
        raise AssertionError("there is no null block, and nothing breaks")

    def hold(self, ids: list[int]) -> None:
        """As `BlockPool` counts them when it gives them out."""
        for i in ids:
            self.a[i].ref_cnt = self.b[i].ref_cnt = 1
        self.held += ids

    def let_go(self, ids: list[int]) -> None:
        for i in ids:
            self.a[i].ref_cnt = self.b[i].ref_cnt = 0
            self.held.remove(i)

    def ids(self, blocks: list[KVCacheBlock]) -> list[int]:
        return [block.block_id for block in blocks]

    def check(self) -> None:
        assert self.ours.num_free_blocks == self.stock.num_free_blocks
        assert self.ids(self.ours.get_all_free_blocks()) == self.ids(self.stock.get_all_free_blocks())


OPERATION = st.tuples(
    st.sampled_from(["pop", "popn", "remove", "touch", "append", "append_n", "prepend_n", "after"]),
    st.integers(0, 40),
    st.integers(0, 2**16),
)


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 40), st.integers(0, 40), st.lists(OPERATION, max_size=60))
def test_without_claims_it_is_the_stock_queue(count: int, hashed: int, operations: list[tuple[str, int, int]]) -> None:
    pair = Pair(count, min(hashed, count))
    for name, size, seed in operations:
        pick = random.Random(seed)
        free = pair.ids(pair.stock.get_all_free_blocks())
        if name == "pop" and free:
            one, two = pair.stock.popleft(), pair.ours.popleft()
            assert one.block_id == two.block_id
            pair.hold([one.block_id])
        elif name == "popn":
            one, two = (q.popleft_n(min(size, len(free))) for q in (pair.stock, pair.ours))
            assert pair.ids(one) == pair.ids(two)
            pair.hold(pair.ids(one))
        elif name == "remove" and free:
            some = pick.sample(free, min(size, len(free)))
            for i in some:
                pair.stock.remove(pair.a[i])
                pair.ours.remove(pair.b[i])
            pair.hold(some)
        elif name == "touch":
            some = free[::-1][: size % 8] + pick.sample(free, min(size % 3, len(free)))
            some += pick.sample(pair.held, min(size % 4, len(pair.held)))
            for i in (some := list(dict.fromkeys(some))):
                if pair.a[i].ref_cnt == 0:
                    pair.stock.remove(pair.a[i])
                pair.a[i].ref_cnt += 1
            pair.touch([pair.b[i] for i in some])
            assert [block.ref_cnt for block in pair.b] == [block.ref_cnt for block in pair.a]
            pair.held += [i for i in some if i in free]
        elif name == "append" and pair.held:
            i = pick.choice(pair.held)
            pair.let_go([i])
            pair.stock.append(pair.a[i])
            pair.ours.append(pair.b[i])
        elif name in ("append_n", "prepend_n"):
            some = pick.sample(pair.held, min(size, len(pair.held)))
            pair.let_go(some)
            getattr(pair.stock, name)([pair.a[i] for i in some])
            getattr(pair.ours, name)([pair.b[i] for i in some])
        elif name == "after":
            i = pick.randrange(count)
            one = list(pair.stock.iter_blocks_after(pair.a[i]))
            assert pair.ids(list(pair.ours.iter_blocks_after(pair.b[i]))) == pair.ids(one)
        pair.check()


def test_it_has_the_whole_interface_of_this_version() -> None:
    """What a newer stock queue adds has to be added here before that version is called supported."""
    stock = {n: f for n, f in inspect.getmembers(FreeKVCacheBlockQueue, inspect.isfunction) if not n.startswith("_")}
    for name, function in stock.items():
        ours = list(inspect.signature(getattr(RankedQueue, name)).parameters)
        assert ours == list(inspect.signature(function).parameters), name
    assert "prepend_n" in stock
    assert "iter_blocks_after" in stock


def test_faults_of_the_caller_are_told_as_the_stock_queue_tells_them() -> None:
    pair = Pair(3, 1)
    for queue, blocks in ((pair.stock, pair.a), (pair.ours, pair.b)):
        with pytest.raises(AssertionError):
            queue.popleft_n(4)
        taken = queue.popleft_n(3)
        with pytest.raises(ValueError, match="No free blocks"):
            queue.popleft()
        with pytest.raises(RuntimeError, match="invalid block"):
            queue.remove(blocks[0])
        assert queue.popleft_n(0) == []
        queue.append_n(taken)
    pair.check()


def test_what_is_taken_out_of_the_middle_leaves_nothing_behind() -> None:
    """Blocks of a prompt, touched in whatever order and let go again, are as many segments as before."""
    blocks = blocks_of(64, 64)
    queue = RankedQueue(blocks, list(blocks))
    touch = touching(queue, lambda blocks: None)
    held = queue.popleft_n(64)
    pick = random.Random(1)
    for _ in range(300):
        for block in held:
            block.ref_cnt = 0
        queue.append_n(held[::-1])
        touch(pick.sample(held, 64))
        assert queue.num_free_blocks == 0
    ranks = [rank for rank in queue.order._ranks if rank is not None]
    assert not any(segment for rank in ranks for segment in rank.all())
    assert sum(len(rank.line) + len(rank.late) for rank in ranks) < 1000
