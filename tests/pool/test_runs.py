"""Costs that must not grow: runs stay few, the heap stays small, payloads are what was stored."""

from __future__ import annotations

import gc
import gzip
import json
import os
import sys
import tracemalloc
from pathlib import Path

import pytest

from kvpolicy.pool import Lease, Mark, Pool, ranks
from kvpolicy.pool.payload import PayloadMismatch
from kvpolicy.pool.run import Run
from kvpolicy.pool.tree import LONGEST
from tests.pool.structure import check_structure


def test_growing_session_stays_one_run() -> None:
    pool = Pool(1000)
    for turn in range(1, 50):
        pool.release(pool.acquire(list(range(turn * 10)), float(turn)), float(turn))
    assert pool.runs == 1


def test_runs_are_merged_again_once_nothing_tells_them_apart() -> None:
    pool = Pool(100)
    prompt = list(range(40))
    for now, length in enumerate((40, 10, 20, 30)):
        pool.release(pool.acquire(prompt[:length], now), now)
    assert pool.runs == 2  # 30 blocks used last, 10 behind them
    mark = pool.mark(prompt, 15, 90, "claim", 5)
    assert pool.runs == 3
    pool.unmark(mark, 6)
    pool.release(pool.acquire(prompt, 7), 7)
    assert pool.runs == 1


def test_no_run_is_longer_than_one_step_may_copy() -> None:
    pool = Pool(3 * LONGEST)
    prompt = list(range(2 * LONGEST + 5))
    pool.release(pool.acquire(prompt[: LONGEST + 1], 0), 0)
    pool.release(pool.acquire(prompt, 1), 1)
    assert pool.match(prompt) == len(prompt)
    assert all(len(run.hashes) <= LONGEST for run in pool._root.children.values())
    check_structure(pool)


def test_order_stays_in_proportion_to_its_runs() -> None:
    """Ten runs re-ranked ten thousand times leave no ten thousand entries."""
    pool = Pool(100)
    marks = []
    for prompt in range(10):
        pool.release(pool.acquire([prompt], 0), 0)
        marks.append(pool.mark([prompt], 1, 50, prompt, 0))
    for step in range(1000):
        pool.weigh_all([(mark, 40 + (step + at) % 20) for at, mark in enumerate(marks)], step)
    assert len(pool.gpu.order.heap) <= 64 + 2 * 10 + 1
    assert len(pool.eviction_order()) == 10


@pytest.mark.parametrize("blocks", [500, 50_000])
def test_reranking_climbs_only_while_it_changes(blocks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted, not timed: a change touches the runs whose strongest claim it changes and one more, not the blocks."""
    pool = Pool(blocks)
    lease = pool.acquire(list(range(blocks)), 0)
    marks = [pool.mark(lease, (at + 1) * blocks // 50, 80, at, 0) for at in range(50)]
    pool.release(lease, 0)
    looked_at = 0
    replace = ranks._replace

    def counting(run: Run, old: int | None, new: int | None) -> None:
        nonlocal looked_at
        looked_at += 1
        replace(run, old, new)

    monkeypatch.setattr(ranks, "_replace", counting)
    pool.weigh(marks[0], 30, 1)  # hidden behind the stronger ones after it
    assert looked_at == 1
    pool.weigh(marks[49], 30, 1)
    assert looked_at == 3
    looked_at = 0
    pool.weigh_all([(mark, 200 + at) for at, mark in enumerate(marks)], 2)  # each stronger than the one before it
    assert looked_at == 50 + 49


def test_memory_of_a_block() -> None:
    """Runs of 64 blocks with three owners each: at most 150 bytes a block, an integer hash included."""
    blocks, span = 64 * 512, 64
    hashes = [(1 << 60) + at for at in range(blocks)]
    gc.collect()
    tracemalloc.start()
    pool = Pool(blocks)
    for start in range(0, blocks, 32 * span):
        lease = pool.acquire(hashes[start : start + 32 * span], 0)
        at: Lease | Mark = lease
        for end in range(32 * span, 0, -span):
            for owner in range(3):
                at = pool.mark(at, end, 50 + owner, None, 0)
        pool.release(lease, 0)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert pool.runs == blocks // span
    assert size / blocks + sys.getsizeof(hashes[0]) <= 150


def test_every_hit_reads_the_payload_back() -> None:
    pool = Pool(8, cpu_blocks=8)
    prompt = ["a", "b", "c"]
    pool.release(pool.acquire(prompt, 0), 0)
    pool.gpu.holds[2] = "other"
    with pytest.raises(PayloadMismatch, match="block 2"):
        pool.acquire(prompt, 1)
    below = Pool(8, cpu_blocks=8)
    below.release(below.acquire(prompt, 0), 0)
    below.evict(3, 1)
    view = below.block(prompt, 1)
    assert view is not None
    assert view.tier == "cpu"
    below.tiers[1].holds[view.block] = "other"
    with pytest.raises(PayloadMismatch):
        below.acquire(prompt, 2)


def test_hashes_of_any_kind_in_any_sequence() -> None:
    pool = Pool(8)
    pool.release(pool.acquire((b"\x00", "a", 3), 0), 0)
    assert pool.match([b"\x00", "a", 3, 4]) == 3
    assert pool.acquire([], 1).length == 0


DATA = Path(os.environ.get("KVPOLICY_DATA", Path(__file__).parents[3] / "shared" / "data"))


@pytest.mark.skipif(not (DATA / "GOLDEN.json").exists(), reason=f"no traces under {DATA}")
@pytest.mark.parametrize(
    "trace",
    [
        "claude_code/claude_code_100x4h_seed7.mooncake.jsonl.gz",
        "mooncake/conversation_first30min.jsonl.gz",
        "mooncake/synthetic_trace.jsonl.gz",
    ],
)
def test_golden_counts_of_the_engine_order(trace: str) -> None:
    """An independent program counted these hits."""
    golden = json.loads((DATA / "GOLDEN.json").read_text())[Path(trace).name]
    with gzip.open(DATA / trace) as lines:
        prompts = [json.loads(line)["hash_ids"] for line in lines]
    total = sum(map(len, prompts))
    assert total == golden["block_refs"]
    for row in golden["at"]:
        pool, hits = Pool(row["capacity_blocks"]), 0
        for at, prompt in enumerate(prompts):
            lease = pool.acquire(prompt, at)
            pool.release(lease, at)
            hits += lease.hits
        assert abs(hits / total - row["lru"]) < 0.0005
