"""The pool's figures: replay, allocate + free + touch, memory, re-ranking. `python tests/bench/pool.py`.

Medians of 9, processor time. Nothing here is a test: what must hold whatever the machine is tested in `tests/pool`.
"""

from __future__ import annotations

import gc
import gzip
import json
import os
import platform
import statistics
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

from kvpolicy.pool import Lease, Mark, Pool

ROUNDS = 9
SPAN = 64  # blocks between two marks
TRACE = "claude_code/claude_code_100x4h_seed7.mooncake.jsonl.gz"


def median(measure: Callable[[], float]) -> float:
    """Median of the rounds, with the collector's pauses between rather than in them."""
    values = []
    for _ in range(ROUNDS):
        gc.collect()
        values.append(measure())
    return statistics.median(values)


def replay() -> None:
    """A real trace under the engine's own order."""
    data = Path(os.environ.get("KVPOLICY_DATA", Path(__file__).parents[3] / "shared" / "data"))
    if not (data / TRACE).exists():
        print(f"  replay: skipped, no {TRACE} under {data}")
        return
    with gzip.open(data / TRACE) as lines:
        prompts = [json.loads(line)["hash_ids"] for line in lines]
    total = sum(map(len, prompts))
    for capacity in (505, 2_526, 12_633):
        hits = 0

        def once(capacity: int = capacity) -> float:
            nonlocal hits
            pool, hits = Pool(capacity), 0
            begin = time.process_time()
            for at, prompt in enumerate(prompts):
                lease = pool.acquire(prompt, at)
                pool.release(lease, at)
                hits += lease.hits
            return time.process_time() - begin

        seconds = median(once)
        print(
            f"  replay, {len(prompts)} requests, {total} block references, {capacity} blocks: {seconds:.3f} s, "
            f"{total / seconds / 1e6:.1f} M references/s, hit ratio {hits / total:.4f}"
        )


def fill(blocks: int, length: int, owners: int) -> tuple[Pool, list[list[int]], int]:
    """A pool full of prompts of `length` blocks, each span of each claimed by `owners` owners."""
    pool, prompts, fresh = Pool(blocks), [], 0
    for _ in range(blocks // length):
        prompt = list(range(fresh, fresh + length))
        fresh += length
        claim(pool, pool.acquire(prompt, 0.0), length, owners)
        prompts.append(prompt)
    return pool, prompts, fresh


def claim(pool: Pool, lease: Lease, length: int, owners: int) -> None:
    """Marks at the end of every span, then the request ends."""
    at: Lease | Mark = lease
    for end in range(length, 0, -SPAN):
        for owner in range(owners):
            at = pool.mark(at, end, 50 + owner, owner, 0.0)
    pool.release(lease, 0.0)


def block_costs(blocks: int, length: int, owners: int) -> None:
    """Allocate (with the eviction it takes), touch and free, each over a twentieth of the pool, at most 64k blocks."""
    pool, prompts, fresh = fill(blocks, length, owners)
    some = max(1, min(65_536, blocks // 20) // length)
    now = 0.0

    def once() -> tuple[float, float, float]:
        nonlocal fresh, now, prompts
        now += 1.0
        new = [list(range(fresh + at * length, fresh + (at + 1) * length)) for at in range(some)]
        fresh += some * length
        prompts = prompts[some:] + new  # the oldest leave for them
        t0 = time.process_time()
        leases = [pool.acquire(prompt, now) for prompt in new]
        t1 = time.process_time()
        for lease in leases:
            pool.release(lease, now)
        t2 = time.process_time()
        held = [pool.acquire(prompt, now) for prompt in prompts[-some:]]
        t3 = time.process_time()
        assert all(lease.hits == length for lease in held)
        for lease in held:
            claim(pool, lease, length, owners)
        return t1 - t0, t2 - t1, t3 - t2

    gc.collect()
    rounds = [once() for _ in range(ROUNDS)]
    allocate, free, touch = (statistics.median(r[k] for r in rounds) / (some * length) * 1e9 for k in range(3))
    print(
        f"  {blocks:>9,} blocks, prompts of {length:>5}, {owners} owners: allocate {allocate:6.0f}  free {free:5.0f}  "
        f"touch {touch:5.0f}  sum {allocate + free + touch:6.0f} ns a block"
    )


def memory(blocks: int, owners: int) -> None:
    """Everything the pool holds when full, over its blocks; the hashes are the caller's and counted apart."""
    gc.collect()
    hashes = [(1 << 60) + at for at in range(blocks)]
    tracemalloc.start()
    pool = Pool(blocks)
    length = 32 * SPAN
    for at in range(0, blocks, length):
        prompt = hashes[at : at + length]
        claim(pool, pool.acquire(prompt, 0.0), len(prompt), owners)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    print(
        f"  {blocks:>9,} blocks in runs of {SPAN}, {owners} owners: {size / blocks:.0f} bytes a block "
        f"(with 36 for an integer hash: {size / blocks + 36:.0f}), {pool.runs} runs"
    )


def rerank(blocks: int, spans: int) -> None:
    """One event changes what every span of a session asks for: down, and up again."""
    pool = Pool(blocks)
    lease = pool.acquire(list(range(blocks)), 0.0)
    marks = [pool.mark(lease, (at + 1) * blocks // spans, 235, at, 0.0) for at in range(spans)]
    pool.release(lease, 0.0)
    now = 1.0

    def each(strengths: list[int]) -> float:
        nonlocal now
        now += 1.0
        begin = time.process_time()
        for mark, strength in zip(marks, strengths, strict=True):
            pool.weigh(mark, strength, now)
        return (time.process_time() - begin) * 1e6

    def at_once(strengths: list[int]) -> float:
        nonlocal now
        now += 1.0
        changes = list(zip(marks, strengths, strict=True))
        begin = time.process_time()
        pool.weigh_all(changes, now)
        return (time.process_time() - begin) * 1e6

    flat_low, flat_high = [30] * spans, [235] * spans
    steps = [90 - at for at in range(spans)]  # every span another rank, the head the strongest
    climb = [20 + at for at in range(spans)]  # the worst order for one at a time: each change climbs to the head
    for name, way in (("one by one", each), ("at once", at_once)):
        rows = []
        for low, high in ((flat_low, flat_high), (steps, flat_high), (climb, flat_low)):
            rows.append(median(lambda low=low, high=high, way=way: max(way(low), way(high))))
        print(
            f"  {spans} spans, {blocks:>6,} blocks, {name:<10}: one rank {rows[0]:5.0f}  falling {rows[1]:5.0f}  "
            f"rising {rows[2]:5.0f} µs"
        )


def main() -> None:
    """Print all of it."""
    python, cores = platform.python_version(), os.cpu_count()
    print(f"pool: medians of {ROUNDS}, processor time; CPython {python}, {platform.machine()}, {cores} cores")
    replay()
    for blocks in (10_000, 1_000_000):
        for length in (64, 1_024):
            for owners in (0, 1, 3):
                block_costs(blocks, length, owners)
    for owners in (0, 1, 3):
        memory(500_000, owners)
    for blocks in (500, 50_000):
        rerank(blocks, 50)


if __name__ == "__main__":
    main()
