"""Without marks the pool is the engine's own queue, block for block: the worked example, and long random histories."""

from __future__ import annotations

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from kvpolicy.pool import Lease, Pool
from tests.pool.stock_queue import StockPool
from tests.pool.structure import check_structure


def test_worked_example_of_a_real_engine() -> None:
    """Ten usable blocks of 16 tokens, as run on vLLM 0.32 and 0.33: block tables, free queue, removals."""
    pool = Pool(10)
    assert pool.free_queue() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]

    a = pool.acquire(["a1", "a2", "a3", "a4"], 0.0)  # 64 tokens
    assert pool.block_ids(a) == [1, 2, 3, 4]
    pool.release(a, 0.0)
    assert pool.free_queue() == [5, 6, 7, 8, 9, 10, 4, 3, 2, 1]

    b = pool.acquire(["a1", "a2", "b3"], 1.0)  # shares 32 tokens of 49
    pool.private(b, 1)
    assert b.hits == 2
    assert pool.block_ids(b) == [1, 2, 5, 6]
    pool.release(b, 1.0)
    assert pool.free_queue() == [6, 7, 8, 9, 10, 4, 3, 5, 2, 1]

    c = pool.acquire([f"c{block}" for block in range(7)], 2.0)
    assert pool.block_ids(c) == [6, 7, 8, 9, 10, 4, 3]
    assert c.evicted == ["a4", "a3"]
    assert pool.free_queue() == [5, 2, 1]


def test_block_being_filled_keeps_its_place() -> None:
    pool = Pool(8)
    lease = pool.acquire(["h1", "h2"], 0.0)
    pool.private(lease, 2)
    assert pool.block_ids(lease) == [1, 2, 3, 4]
    pool.extend(lease, ["h3"], 1.0)
    assert pool.block_ids(lease) == [1, 2, 3, 4]
    assert lease.stored == ["h1", "h2", "h3"]
    pool.release(lease, 2.0)
    assert pool.free_queue() == [4, 5, 6, 7, 8, 3, 2, 1]


def test_copy_of_a_resident_block_is_returned() -> None:
    """Two requests compute one block at once: one copy stays, the other is the first to be reused."""
    pool = Pool(6)
    one, two = pool.acquire(["h"], 0.0), pool.acquire(["h"], 0.0)
    pool.private(one, 1)
    pool.private(two, 1)
    pool.extend(one, ["i"], 1.0)
    pool.extend(two, ["i"], 1.0)
    assert pool.block_ids(one) == pool.block_ids(two) == [1, 2]
    assert two.stored == []
    assert pool.free_queue() == [3, 4, 5, 6]


class StockLife(RuleBasedStateMachine):
    """What a block is called: its whole prefix, so that hashes are prefix-chained."""

    leases = Bundle("leases")

    @initialize(blocks=st.integers(1, 14))
    def begin(self, blocks: int) -> None:
        self.pool, self.stock = Pool(blocks), StockPool(blocks)
        self.now = 0.0
        self.fresh = 0

    @rule(target=leases, prompt=st.lists(st.integers(0, 1), max_size=8))
    def acquire(self, prompt: list[int]) -> tuple[Lease, list[int]]:
        hashes: list[object] = [tuple(prompt[:end]) for end in range(1, len(prompt) + 1)]
        self.now += 1
        lease = self.pool.acquire(hashes, self.now)
        table, hits = self.stock.allocate(hashes)
        assert lease.hits == hits
        return lease, table

    @rule(row=leases, count=st.integers(1, 3))
    def decode(self, row: tuple[Lease, list[int]], count: int) -> None:
        lease, table = row
        for _ in range(self.pool.private(lease, count)):
            block = self.stock.pop()
            assert block is not None
            table.append(block)

    @rule(row=leases, count=st.integers(1, 3))
    def fill(self, row: tuple[Lease, list[int]], count: int) -> None:
        """More full blocks with tokens that nobody had before."""
        lease, table = row
        if lease.short:
            return
        new: list[object] = [("fresh", self.fresh + at) for at in range(count)]
        self.fresh += count
        filling = len(lease.private)
        self.pool.extend(lease, new, self.now)
        for block_hash in new:
            if filling:
                block: int | None = table[len(table) - filling]
                filling -= 1
            else:
                block = self.stock.pop()
                if block is None:
                    break
                table.append(block)
            self.stock.name(block, block_hash)

    @rule(row=consumes(leases))
    def release(self, row: tuple[Lease, list[int]]) -> None:
        self.now += 1
        self.pool.release(row[0], self.now)
        self.stock.free(row[1])

    @rule(count=st.integers(0, 4))
    def evict(self, count: int) -> None:
        before = len(self.stock.evicted)
        self.stock.evict(count)
        assert self.pool.evict(count, self.now) == self.stock.evicted[before:]

    @invariant()
    def agree(self) -> None:
        # INVARIANT: no policy, no change.
        assert self.pool.free_queue() == list(self.stock.queue)
        cached = [block for block in self.stock.queue if block in self.stock.hash_of]
        assert self.pool.eviction_order() == [self.stock.hash_of[block] for block in cached]
        assert self.pool.available == len(self.stock.queue)
        check_structure(self.pool)


StockLife.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestStockLife = StockLife.TestCase


@pytest.mark.parametrize("seed", range(40))
def test_long_histories(seed: int) -> None:
    draw = random.Random(seed)
    life = StockLife()
    life.begin(draw.randint(1, 20))
    rows = []
    for _ in range(150):
        step = draw.randint(0, 9)
        if step <= 3:
            row = life.acquire([draw.randint(0, 2) for _ in range(draw.randint(0, 8))])
            rows.append(row)
            before = len(life.stock.evicted) - len(row[0].evicted)
            assert row[0].evicted == life.stock.evicted[before:]
            assert life.pool.block_ids(row[0]) == row[1]
        elif step <= 6 and rows:
            life.release(rows.pop(draw.randrange(len(rows))))
        elif step == 7 and rows:
            life.decode(draw.choice(rows), draw.randint(1, 3))
        elif step == 8 and rows:
            life.fill(draw.choice(rows), draw.randint(1, 3))
        else:
            life.evict(draw.randint(0, 3))
        life.agree()
