"""The contract's laws on vLLM's own scheduler and blocks, over random histories; and that no block is lost."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engines.vllm.core.stepped import SIZE, Stepped, prompt

BLOCKS = 40


def told(pick: random.Random, blocks: int) -> dict[str, Any] | None:
    """What a request of `blocks` blocks may say."""
    if pick.random() < 0.2:
        return None
    spans, start = [], 0
    while start < blocks * SIZE:
        end = min(blocks * SIZE, start + pick.randrange(1, 4) * SIZE + pick.choice([0, 3]))
        row: dict[str, Any] = {"kind": pick.choice(["system", "turn", "document"]), "start": start, "end": end}
        if pick.random() < 0.8:
            row["priority"] = pick.choice([0, 10, 35, 50, 80, 100])
        if pick.random() < 0.3:
            row["ttl"] = pick.choice([1, 5, 60])
            row["fixed"] = pick.random() < 0.3
        if pick.random() < 0.2:
            row["retention"] = pick.choice(["drop", "pin"])
        if pick.random() < 0.2:
            row["hold"] = pick.choice([2, 30])
        spans.append(row)
        start = end
    return {"owner": pick.choice(["a", "b", None, {"tenant": "t", "agent": "x"}]), "spans": spans}


def check(engine: Stepped) -> None:
    keeper = engine.keeper
    assert keeper.counters["failures"] == 0
    order = engine.order()
    assert len(order) == len(set(order)) == engine.free
    if engine.claims is None:
        return
    engine.claims.heed(engine.now)
    trunk = engine.claims.trunk
    ranks = [trunk.rank_of(i) for i in order]
    queued = [r for i, r in zip(order, ranks, strict=True) if engine.pool.blocks[i].block_hash is not None]
    assert queued == sorted(queued), "the order of the queue is that of ranks"
    seen: set[int] = set()
    pending = [trunk.tree.root]
    while pending:
        run = pending.pop()
        for child in run.children.values():
            # INVARIANT: law 1, along one prompt the rank never increases.
            assert child.rank <= run.rank
            pending.append(child)
        for key in run.hashes:
            assert key not in seen
            seen.add(key)
            assert engine.run_of(key) is run
            assert engine.pool.blocks[key].block_hash is not None
    assert trunk.protected_blocks <= int(0.4 * (BLOCKS - 1))
    claimed = sum(1 for i in range(1, BLOCKS) if trunk.rank_of(i) >= 200)
    assert claimed == trunk.protected_blocks


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(["plain", "async"]))
def test_random_histories_keep_the_laws(seed: int, kind: str) -> None:
    pick = random.Random(seed)
    engine = Stepped(kind, blocks=BLOCKS, batched=96, max_seqs=3)
    for _ in range(30):
        action = pick.random()
        if action < 0.6:
            head, tail = pick.randrange(1, 6), pick.randrange(0, 5)
            tokens = prompt(pick.randrange(3), head, 0) + prompt(100 + pick.randrange(6), tail, pick.randrange(1, SIZE))
            engine.add(tokens, told(pick, head + tail), output=pick.choice([1, 3, 20]))
        if action < 0.8:
            for _ in range(pick.randrange(1, 6)):
                engine.step()
        elif action < 0.85 and engine.scheduler.requests:
            engine.abort(pick.choice(list(engine.scheduler.requests)))
        elif action < 0.95:
            owner = pick.choice(["a", "b", {"tenant": "t", "agent": "x"}])
            engine.say(do="rank", owner=owner, priority=pick.randrange(101), ttl=pick.choice([None, 3]))
        else:
            engine.say(do=pick.choice(["release", "release_all"]), owner=pick.choice(["a", "b"]))
        engine.now += pick.choice([0.0, 0.5, 4.0, 100.0])
        if pick.random() < 0.05:
            engine.scheduler.reset_prefix_cache()
        check(engine)
    engine.run()
    check(engine)
    assert engine.free == BLOCKS - 1


@pytest.mark.parametrize("seed", range(3))
def test_admission_is_that_of_stock_vllm(seed: int) -> None:
    """Law 4: with everything claimed, pinned or dropped, every request is admitted in the step in which it would be."""
    pick = random.Random(seed)
    engine, stock = Stepped(blocks=BLOCKS, batched=96), Stepped("stock", blocks=BLOCKS, batched=96)
    for n in range(40):
        tokens, said = prompt(500 + n, pick.randrange(1, 12)), told(pick, 1)
        for each in (engine, stock):
            each.add(tokens, said, output=9)
        for _ in range(pick.randrange(4)):
            assert engine.step() == stock.step()
            assert engine.free == stock.free
    assert engine.keeper.counters["failures"] == 0
