"""`make demo-cluster`: eight simulated engines behind four ways to choose one, as real processes.

The scenario of llm-d's tutorial on prefix-aware routing: engines with room for 300,000 tokens, groups of users with a
system prompt of 6,000 tokens, questions of 1,000 tokens, answers of 1,000. Scaled to two cores: every number of tokens
is divided by --scale and every time per token multiplied by it, so what fits where and how long a prompt takes stay
the same; then all times of the engines are multiplied by --stretch and the rate divided by it, so that nine Python
processes keep up. No model runs. Engines prefill one prompt at a time and decode side by side. TTFT is the client's
whole time less the engine's own decoding; at the engine it is from the request's arrival there. Engines' times are
sleeps, so a busy machine changes them little; the way there is Python's share, and grows with whatever else runs.

    .venv/bin/python -m tests.cluster.demo [--seeds 1,2,3] [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import signal
import statistics
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any

from tests.cluster.processes import Engine, engines, gateway
from tests.cluster.traffic import Ask, Got, Scenario, asks, drive, prompts

POOL, SYSTEM, QUESTION, OUTPUT = 300_000, 6_000, 1_000, 1_000  # tokens of the tutorial
PREFILL_S, DECODE_S, OVERHEAD_S = 0.0001, 0.01, 0.005  # seconds a token, and a request
BLOCK = 16
ARMS = ("round robin", "session affinity", "residency", "residency + policy")


def main(words: Sequence[str] | None = None) -> int:
    """Run it, print a table, write the JSON."""
    args = _parser().parse_args(words)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # its processes end with it
    scale, seeds = args.scale, [int(seed) for seed in args.seeds.split(",")]
    rate, slower = args.rate / args.stretch, args.stretch * scale
    lengths = (SYSTEM // scale, QUESTION // scale, OUTPUT // scale)
    scenario = Scenario(args.groups, args.users, *lengths, rate, args.seconds)
    speed = f"--prefill-s {PREFILL_S * slower} --decode-s {DECODE_S * slower} --overhead-s {OVERHEAD_S * args.stretch}"
    sizes = ["--blocks", str(POOL // scale // BLOCK), "--block-size", str(BLOCK)]
    rows: list[dict[str, Any]] = []
    began = time.time()
    print(f"— {args.engines} simulated engines (no model runs), {scenario}", file=sys.stderr)
    with engines(args.engines, [*sizes, *speed.split()]) as cluster:
        for seed in seeds:
            system, listed = prompts(scenario, seed), asks(scenario, seed)
            for arm in ARMS:
                for engine in cluster:
                    _post(f"{engine.url}/reset_prefix_cache")
                with chosen(arm, cluster, args.policy, scale) as choose:
                    got, failed = asyncio.run(drive(choose, system, listed, scenario))
                row = {"arm": arm, "seed": seed, "requests": len(listed), "failed": failed}
                row |= {**figures(got), **duplicated(cluster), "load": os.getloadavg()[0]}
                rows.append(row)
                print(json.dumps(row), file=sys.stderr, flush=True)
                if args.json:
                    write(args, scenario, rows, began)
    print(table(rows))
    return 0


def write(args: argparse.Namespace, scenario: Scenario, rows: Sequence[dict[str, Any]], began: float) -> None:
    """All figures so far, with what they were measured on."""
    scale, slower = args.scale, args.stretch * args.scale
    document = {
        "what": "simulated engines: real KV accounting and real processes, no model and no GPU",
        "scale": {"tokens_divided_by": scale, "times_per_token_multiplied_by": slower, "stretched_by": args.stretch},
        "engines": {"count": args.engines, "pool_tokens": POOL // scale, "block_size": BLOCK},
        "seconds_per_scaled_token": {"prefill": PREFILL_S * slower, "decode": DECODE_S * slower},
        "scenario": {name: getattr(scenario, name) for name in scenario.__slots__},
        "policy": args.policy,
        "conditions": {"cores": os.cpu_count(), "load": os.getloadavg(), "began": began, "wall_s": time.time() - began},
        "runs": rows,
    }
    with open(args.json, "w", encoding="utf-8") as out:
        json.dump(document, out, indent=1)
        out.write("\n")


@contextmanager
def chosen(arm: str, cluster: Sequence[Engine], policy: str, scale: int) -> Iterator[Callable[[Ask], str]]:
    """Where a request is sent. The first two arms choose in the client, as a plain load balancer would."""
    if arm == "round robin":
        turns = itertools.cycle(engine.url for engine in cluster)
        yield lambda ask: next(turns)
    elif arm == "session affinity":
        yield (
            lambda ask: (
                cluster[int.from_bytes(blake2b(ask.user.encode(), digest_size=4).digest(), "big") % len(cluster)].url
            )
        )
    else:
        # In shadow the gateway chooses engines by what they hold, and tells them nothing.
        mode = "enforce" if arm == "residency + policy" else "shadow"
        with gateway(cluster, policy, mode, 512 / scale, BLOCK) as url:
            yield lambda ask: url


def figures(got: Sequence[Got]) -> dict[str, Any]:
    """Of one run. Throughputs over the time until its last answer."""
    if not got:
        return {}
    first, engine = sorted(row.first_s for row in got), sorted(row.at_engine_s for row in got)
    wall = max(row.done_at for row in got)
    prompt, cached = sum(row.prompt for row in got), sum(row.cached for row in got)
    return {
        "ttft_s": quantiles(first),
        "ttft_at_engine_s": quantiles(engine),
        "way_s": {"mean": round(statistics.fmean(row.first_s - row.at_engine_s for row in got), 3)},
        "queue_s": {"mean": round(statistics.fmean(row.queued_s for row in got), 3)},
        "hit_ratio": round(cached / prompt, 4),
        "cached_tokens_per_s": round(cached / wall, 1),
        "uncached_tokens_per_s": round((prompt - cached) / wall, 1),
        "output_tokens_per_s": round(sum(row.output for row in got) / wall, 1),
        "wall_s": round(wall, 1),
    }


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """Of sorted values."""
    return {f"p{q}": round(values[min(len(values) - 1, len(values) * q // 100)], 3) for q in (50, 90, 99)}


def duplicated(cluster: Sequence[Engine]) -> dict[str, Any]:
    """Copies of blocks over the whole cluster, after the run: resident ones for each that is different."""
    copies: dict[str, int] = {}
    for engine in cluster:
        with urllib.request.urlopen(f"{engine.url}/sim/blocks?most=100000", timeout=60) as answer:
            for row in json.loads(answer.read())["blocks"]:
                copies[row["hash"]] = copies.get(row["hash"], 0) + 1
    total = sum(copies.values())
    return {"resident_blocks": total, "different_blocks": len(copies), "copies": round(total / max(1, len(copies)), 3)}


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Means over the seeds, and the range of the TTFT."""
    head = "arm|at the engine: TTFT p50 s|p90 s (range)|queue s|way there s|hits|copies|cached tok/s|failed"
    lines = ["| " + " | ".join(head.split("|")) + " |"]
    lines.append("|---|---|---|---|---|---|---|---|---|")
    for arm in ARMS:
        mine = [row for row in rows if row["arm"] == arm and "ttft_s" in row]
        if not mine:
            continue
        p90 = [row["ttft_at_engine_s"]["p90"] for row in mine]

        def mean(look: Callable[[dict[str, Any]], float], of: Sequence[dict[str, Any]] = mine) -> float:
            return statistics.fmean(look(row) for row in of)

        lines.append(
            f"| {arm} | {mean(lambda r: r['ttft_at_engine_s']['p50']):.2f} | {statistics.fmean(p90):.2f} "
            f"({min(p90):.2f}–{max(p90):.2f}) | {mean(lambda r: r['queue_s']['mean']):.2f} "
            f"| {mean(lambda r: r['way_s']['mean']):.2f} "
            f"| {mean(lambda r: r['hit_ratio']):.1%} | {mean(lambda r: r['copies']):.2f} "
            f"| {mean(lambda r: r['cached_tokens_per_s']):.0f} | {sum(row['failed'] for row in mine)} |"
        )
    return "\n".join(lines)


def _post(url: str) -> None:
    with urllib.request.urlopen(urllib.request.Request(url, method="POST"), timeout=60) as answer:
        answer.read()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make demo-cluster", description=__doc__.splitlines()[0])
    parser.add_argument("--engines", type=int, default=8)
    parser.add_argument("--scale", type=int, default=10, help="tokens are divided by it; default: 10")
    parser.add_argument("--groups", type=int, default=150, help="system prompts; default: 150")
    parser.add_argument("--users", type=int, default=5, help="users of each; default: 5")
    parser.add_argument("--rate", type=float, default=16.0, help="requests a second, unstretched; default: 16")
    parser.add_argument("--stretch", type=float, default=3.0, help="engines are so many times slower; default: 3")
    parser.add_argument("--seconds", type=float, default=30.0, help="of arrivals a run; default: 30")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--policy", default="chat_rag")
    parser.add_argument("--json", metavar="FILE", help="write all figures there")
    return parser


if __name__ == "__main__":
    sys.exit(main())
