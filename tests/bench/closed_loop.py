"""The modelled engine: how fast it runs, and what policies do to sessions on it over a range of loads.

    python tests/bench/closed_loop.py                       the speed, and a few loads with one seed
    python tests/bench/closed_loop.py --sweep --out FILE    all loads and seeds; again: it goes on where it stopped

`FILE.rows` keeps each run as it ends; FILE is the summary as JSON, with commit and command. Ratio: mean session time
under `lru` with the queue of vLLM's default, over that of the contender; above 1 is better. Every contender plays the
same sessions with the same arrivals, so the interval is a paired bootstrap over sessions, within seeds.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import shlex
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from kvpolicy.faults import InputFault
from kvpolicy.simulate.bench_run import appending
from kvpolicy.simulate.closed.compare import Engine, play
from kvpolicy.simulate.closed.demand import schedule_of
from kvpolicy.simulate.closed.frozen import digest
from kvpolicy.simulate.closed.models import engine_model
from kvpolicy.simulate.interleaving import Interleaving
from kvpolicy.simulate.library import find
from kvpolicy.simulate.names import contender
from kvpolicy.simulate.trace import Facts
from kvpolicy.simulate.workloads.catalogue import workload

MODEL = "h100-8b"
POOL_TOKENS = 458_000  # KV pool of an H100 with Llama-3.1-8B, as the replication of Continuum states it
FCFS = ("lru", "continuum-released", "adaptive", "coding_agent")
SESSION = ("lru", "adaptive")
LOADS = {
    "continuum-swe": (0.03, 0.08, 0.09, 0.1, 0.11, 0.12, 0.14, 0.2, 0.4),
    "continuum-bfcl": (0.1, 0.3, 0.4, 0.5, 0.6, 1.0),
}
SAMPLES = 1000


@dataclass(frozen=True)
class Point:
    """One run. per_s: sessions that begin in a second."""

    workload: str
    sessions: int
    per_s: float
    seed: int
    policy: str
    queue: str

    @property
    def trace(self) -> tuple[str, int, float, int]:
        """What it plays."""
        return self.workload, self.sessions, self.per_s, self.seed

    @property
    def key(self) -> str:
        """One line that tells it from all others, the model's digest with it."""
        return json.dumps([*asdict(self).values(), MODEL, POOL_TOKENS, digest()])


def points(seeds: Iterable[int], sessions: int, names: Iterable[str], loads: Iterable[float] | None) -> list[Point]:
    """Seed by seed, so that a part of it is a smaller sweep."""
    return [
        Point(name, sessions, load, seed, policy, queue)
        for seed in seeds
        for name in names
        for load in loads or LOADS[name]
        for queue, policies in (("fcfs", FCFS), ("session", SESSION))
        for policy in policies
    ]


def one_trace(group: list[Point]) -> list[tuple[Point, dict[str, Any]]]:
    """All runs of one trace: it is made once."""
    first = group[0]
    facts = Facts()
    made = workload(first.workload, first.seed, {"sessions": float(first.sessions), "per_s": first.per_s})
    schedule = schedule_of(made.calls(facts))
    done = []
    for point in group:
        engine = Engine(engine_model(MODEL), queue=point.queue)
        tally = play(schedule, facts, contender(point.policy), POOL_TOKENS // facts.block_size, engine)
        row = tally.as_json(10.0, None)
        done.append((point, {"row": row, "session_s": [round(value, 3) for value in tally.session_s]}))
    return done


def run_all(wanted: list[Point], rows: Path, jobs: int) -> dict[Point, dict[str, Any]]:
    """What `rows` has not yet, on `jobs` processes; told on stderr as it goes."""
    known = {}
    if rows.is_file():
        for line in rows.read_text(encoding="utf-8").splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                continue  # it was cut off when a run was stopped
            known[entry["key"]] = entry["value"]
    found = {point: known[point.key] for point in wanted if point.key in known}
    groups: dict[tuple[Any, ...], list[Point]] = {}
    for point in wanted:
        if point not in found:
            groups.setdefault(point.trace, []).append(point)
    began, left = time.monotonic(), sum(map(len, groups.values()))
    print(f"{len(found)} runs are there, {left} are to be made", file=sys.stderr)
    with multiprocessing.Pool(jobs) as pool, appending(rows) as file:
        for done in pool.imap_unordered(one_trace, groups.values()):
            for point, value in done:
                file.write(json.dumps({"key": point.key, "value": value}).encode() + b"\n")
                found[point] = value
            file.flush()
            left -= len(done)
            print(f"{left} runs left after {time.monotonic() - began:.0f} s: {done[0][0].trace}", file=sys.stderr)
    return found


def interval(pairs: list[tuple[list[float], list[float]]]) -> tuple[float, float, float]:
    """(ratio of sums, 2.5 % and 97.5 % of a bootstrap): sessions are drawn within each seed, both sides together."""
    ratio = sum(sum(base) for base, _ in pairs) / sum(sum(other) for _, other in pairs)
    draw, found = random.Random(1), []
    for _ in range(SAMPLES):
        above = below = 0.0
        for base, other in pairs:
            for place in draw.choices(range(len(base)), k=len(base)):
                above += base[place]
                below += other[place]
        found.append(above / below)
    found.sort()
    return ratio, found[round(0.025 * SAMPLES)], found[round(0.975 * SAMPLES) - 1]


def summary(found: dict[Point, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """One row a workload, load, queue and policy: all seeds together."""
    groups: dict[tuple[str, float, str, str], list[Point]] = {}
    for point in found:
        groups.setdefault((point.workload, point.per_s, point.queue, point.policy), []).append(point)
    for (name, load, queue, policy), members in sorted(groups.items()):
        pairs, seeds = [], []
        for point in members:
            base = found.get(Point(name, point.sessions, load, point.seed, "lru", "fcfs"))
            if base is None:
                continue
            pairs.append((base["session_s"], found[point]["session_s"]))
            seeds.append(sum(base["session_s"]) / sum(found[point]["session_s"]))
        if not pairs:
            continue
        ratio, low, high = interval(pairs)
        rows = [found[point]["row"] for point in members]
        yield {
            "workload": name,
            "per_s": load,
            "queue": queue,
            "policy": policy,
            "seeds": len(pairs),
            "ratio": round(ratio, 4),
            "interval": [round(low, 4), round(high, 4)],
            "by_seed": [round(value, 4) for value in seeds],
            **{
                key: round(sum(row[key] for row in rows) / len(rows), 4)
                for key in ("hit_ratio", "busy_share", "preemptions", "refused", "planning_failures")
            },
            "session_s_mean": _mean(rows, "session_s", "mean"),
            "ttft_s_p50": _mean(rows, "ttft_s", "p50"),
            "ttft_s_p99": _mean(rows, "ttft_s", "p99"),
            "uncached_tokens": round(sum(row["uncached_tokens"] for row in rows) / len(rows)),
            "recomputed_tokens": round(sum(row["recomputed_tokens"] for row in rows) / len(rows)),
        }


def _mean(rows: list[dict[str, Any]], key: str, part: str) -> float:
    values = [float(row[key][part]) for row in rows]
    return round(sum(values) / len(values), 3)


def show(rows: list[dict[str, Any]]) -> None:
    """A table a workload and queue: loads down, policies across."""
    for name in dict.fromkeys(row["workload"] for row in rows):
        for queue, policies in (("fcfs", FCFS), ("session", SESSION)):
            print(f"{name}, queue {queue}: mean session time of lru (fcfs) over that of each, 95 % interval")
            print("  sessions/s  " + "  ".join(policy.rjust(22) for policy in policies))
            for load in sorted({row["per_s"] for row in rows if row["workload"] == name}):
                cells = []
                for policy in policies:
                    at = (name, load, queue, policy)
                    row = next((r for r in rows if (r["workload"], r["per_s"], r["queue"], r["policy"]) == at), None)
                    cell = "-" if row is None else "{:.2f} [{:.2f}, {:.2f}]".format(row["ratio"], *row["interval"])
                    cells.append(cell.rjust(22))
                print(f"  {load:10g}  " + "  ".join(cells))


def speed() -> int:
    """The claude-code trace, 100 sessions over 4 h: seconds of this process. 1 where it takes a minute or more."""
    try:
        trace, told = find("claude-code", Interleaving())
    except InputFault as fault:
        print(f"claude-code is not here: {fault}")
        return 0
    facts = Facts()
    began = time.process_time()
    schedule = schedule_of(trace.calls(facts))
    read = time.process_time() - began
    over = 0
    for share in (0.02, 0.05, 0.2):
        capacity = int(share * facts.unique_blocks)
        began = time.process_time()
        tally = play(schedule, facts, contender("lru"), capacity, Engine(engine_model(MODEL)))
        took = time.process_time() - began
        over |= read + took >= 60
        print(
            f"  {told or 'claude-code'}: lru, {capacity} blocks, {tally.requests} requests, {tally.steps} steps, "
            f"{tally.makespan_s / 3600:.1f} h modelled: {took:.1f} s, and {read:.1f} s to read (bound: 60 s)"
        )
    return over


def main() -> int:
    """See above."""
    parser = argparse.ArgumentParser(description="figures of the modelled engine")
    parser.add_argument("--sweep", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("closed-loop.json"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--sessions", type=int, default=60)
    parser.add_argument("--workloads", default=",".join(LOADS))
    parser.add_argument("--loads")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    args = parser.parse_args()
    if not args.sweep:
        over = speed()
        wanted = points([11], 30, ["continuum-swe"], (0.03, 0.1))
        show(list(summary({p: v for group in _groups(wanted) for p, v in one_trace(group)})))
        return over
    loads = None if args.loads is None else tuple(map(float, args.loads.split(",")))
    wanted = points(range(11, 11 + args.seeds), args.sessions, args.workloads.split(","), loads)
    found = run_all(wanted, args.out.with_suffix(args.out.suffix + ".rows"), args.jobs)
    rows = list(summary(found))
    show(rows)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    document = {
        "what": "ratio of mean session time: lru under fcfs over the contender; above 1 is better",
        "command": shlex.join(["python", *sys.argv]),
        "commit": commit,
        "python": sys.version.split()[0],
        "engine_model": {**engine_model(MODEL).as_json(), "digest": digest(), "pool_tokens": POOL_TOKENS},
        "sessions": args.sessions,
        "seeds": sorted({point.seed for point in found}),
        "bootstrap": {"samples": SAMPLES, "of": "sessions, within each seed, both sides together"},
        "results": rows,
    }
    args.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0


def _groups(wanted: list[Point]) -> Iterable[list[Point]]:
    groups: dict[tuple[Any, ...], list[Point]] = {}
    for point in wanted:
        groups.setdefault(point.trace, []).append(point)
    return groups.values()


if __name__ == "__main__":
    sys.exit(main())
