"""Workflows whose future the graph tells: how far their policies are from the bound, and what each part of them does.

`python tests/bench/workflows_policies.py [--out FILE.json]`; three seeds each, printed as it goes. FILE is written
after each part, and a run that was broken off goes on behind the last of them (delete it to begin anew). Misses are
blocks not found, those that nobody had sent before included, over the misses of `belady-resident`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from heapq import heapify
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from kvpolicy.claims.line import Line
from kvpolicy.claims.settling import Settling
from kvpolicy.claims.strength import PROTECTED
from kvpolicy.simulate.baselines.cost_bound import cost_bound
from kvpolicy.simulate.capacity import Capacity
from kvpolicy.simulate.names import Contender, contender
from kvpolicy.simulate.oracle import History, belady_resident
from kvpolicy.simulate.simulate import simulate
from kvpolicy.simulate.trace import Facts
from kvpolicy.simulate.workloads.catalogue import workload
from tests.bench.tree_levels import ABLATIONS, play

SEEDS = (11, 12, 13)
AIM = 1.10
CHAINS = ("lru", "kvflow", "kvflow-paper", "adaptive")
TREES = ("lru", "tree_of_thought")
# (workload, settings, capacities in percent of unique blocks, contenders)
CASES: tuple[tuple[str, dict[str, float], tuple[int, ...], tuple[str, ...]], ...] = (
    ("kvflow-chain", {}, (20, 40, 80), CHAINS),
    ("kvflow-many", {"workflows": 10, "rounds": 3}, (10, 20, 40), ("lru", "kvflow")),
    ("kvflow-peer", {"tasks": 15}, (5, 20), ("lru", "kvflow")),
    ("tree-docmerge", {"searches": 1}, (60, 65), TREES),
    ("tree-keyword", {"searches": 1}, (80,), TREES),
    ("tree-docmerge", {"searches": 3}, (30, 60), TREES),
)
TTL = 'policy uniform_ttl "One lifetime for all."\n\nany { priority: 60  ttl: 10min }\n'
PINS = 'policy pins "A pin on everything."\n\nany { retention: pin }\n'
EQUAL: tuple[tuple[str, dict[str, float], int], ...] = (
    ("uniform-chat", {"sessions": 100}, 20),
    ("one-shot", {"sessions": 500}, 10),
    ("continuum-swe", {"sessions": 30}, 20),
)


def against_the_bound() -> Iterator[dict[str, Any]]:
    """One row a workload, capacity and policy: misses over those of the bound, for each seed."""
    for name, settings, shares, policies in CASES:
        ratios: dict[tuple[int, str], list[float]] = {}
        for seed in SEEDS:
            capacities = [Capacity(Fraction(share), "percent") for share in shares]
            found = simulate(workload(name, seed, settings), [contender(p) for p in policies], capacities)
            sizes = list(dict.fromkeys(tally.capacity_blocks for tally in found.tallies))
            for tally in found.tallies:
                bound = found.references["belady-resident", tally.capacity_blocks]
                assert not tally.failures
                ratio = (tally.block_refs - tally.block_hits) / (bound.block_refs - bound.block_hits)
                ratios.setdefault((shares[sizes.index(tally.capacity_blocks)], tally.policy), []).append(ratio)
        for (share, policy), values in ratios.items():
            yield {
                "workload": name,
                "settings": settings,
                "capacity_percent": share,
                "policy": policy,
                "misses_over_bound": [round(value, 4) for value in values],
                "mean": round(statistics.mean(values), 4),
            }


def levels() -> Iterator[dict[str, Any]]:
    """The search in a pool for its trunk, the winners on the way and three branches, with and without each part."""
    for trunk in (30_000, 65_000, 100_000):
        for name, text in ABLATIONS.items():
            for seed in SEEDS if name == "tree_of_thought" else SEEDS[:1]:
                seen, tally = play(text, trunk, seed)
                yield {
                    "trunk": trunk,
                    "policy": name,
                    "seed": seed,
                    "gpu_blocks": tally.capacity_blocks,
                    "recomputed_tokens": tally.recomputed_tokens,
                    "levels": [level.as_json() for level in seen],
                }


def equalities() -> Iterator[dict[str, Any]]:
    """One lifetime for everything, and a pin on everything, beside lru, lru with what the pins leave, and those pins if
    the budget kept the latest ones."""
    for name, settings, share in EQUAL:
        rules = [Contender("uniform TTL", "policy", False, text=TTL), Contender("pins", "policy", False, text=PINS)]
        trace = workload(name, SEEDS[0], settings)
        sizes = [Capacity(Fraction(share), "percent"), Capacity(Fraction(share * 6, 10), "percent")]
        found = simulate(trace, [contender("lru"), *rules], sizes)
        whole, part = found.tallies[:3], found.tallies[3]
        with latest_kept():
            otherwise = simulate(workload(name, SEEDS[0], settings), [contender("lru"), rules[1]], sizes[:1])
        yield {
            "workload": name,
            "settings": settings,
            "capacity_percent": share,
            "hits": {tally.policy: tally.block_hits for tally in whole},
            "lru_with_60_percent_of_it": part.block_hits,
            "pins_if_the_latest_were_kept": otherwise.tallies[1].block_hits,
        }


@contextmanager
def latest_kept() -> Iterator[None]:
    """What the contract does not say: among equal claims not who was protected first keeps its protection, but whose
    blocks were used latest."""
    stock = Settling._protect

    def renewed(self: Settling, line: Line, now: float) -> None:
        if line.pieces and line.pieces[-1][1] >= PROTECTED:
            budget = self.budget
            budget._heap = [entry for entry in budget._heap if entry[3] is not line]
            heapify(budget._heap)
            line.queued.clear()
            self._turn += 1
            line.holder.since = -self._turn
        stock(self, line, now)

    Settling._protect = renewed  # type: ignore[method-assign]
    try:
        yield
    finally:
        Settling._protect = stock  # type: ignore[method-assign]


def bounds() -> Iterator[dict[str, Any]]:
    """What the least cost is, with CPU memory below and without, beside what MIN's hits alone would say."""
    for name, settings in (("kvflow-many", {"workflows": 10.0, "rounds": 5.0}), ("tree-docmerge", {"searches": 3.0})):
        history, facts = History(), Facts()
        for call in workload(name, SEEDS[0], dict(settings)).calls(facts):
            history.append(call)
        blocks = facts.unique_blocks // 3
        one, two = cost_bound(history, blocks), cost_bound(history, blocks, blocks)
        yield {
            "workload": name,
            "gpu_blocks": blocks,
            "compute_everything_s": round(one.all_s, 2),
            "least_s": round(one.least_s, 2),
            "least_with_as_much_cpu_s": round(two.least_s, 2),
            "unlimited_s": round(one.all_s - one.infinite_s, 2),
            "belady_resident_hits": sum(belady_resident(history, blocks)[0]),
        }


def main() -> int:
    """Print and keep the figures; rows of a policy that knows the graph are named where they are over the aim."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", metavar="FILE")
    out = parser.parse_args().out
    result: dict[str, Any] = json.loads(Path(out).read_text(encoding="utf-8")) if out and Path(out).exists() else {}
    result |= {"command": f"python tests/bench/workflows_policies.py --out {out}", "commit": _commit()}
    result |= {"python": sys.version.split()[0], "seeds": list(SEEDS)}
    for part in (levels, equalities, bounds, against_the_bound):
        if part.__name__ in result:
            continue
        print(f"  {part.__name__.replace('_', ' ')}")
        rows = []
        for row in part():
            rows.append(row)
            print(f"    {json.dumps(row)}", flush=True)
        result[part.__name__] = rows
        if out:
            Path(out).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    knows = [r for r in result["against_the_bound"] if r["policy"] in ("kvflow", "tree_of_thought")]
    over = [r for r in knows if r["mean"] > AIM]
    for row in over:
        print(f"  over {AIM}: {row['workload']} {row['settings']} at {row['capacity_percent']} %: {row['mean']}")
    print(f"  {len(knows) - len(over)} of {len(knows)} rows of kvflow and tree_of_thought within {AIM} of the bound")
    return 0


def _commit() -> str:
    return subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
