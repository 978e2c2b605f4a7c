"""Owners with ten claims each: memory an owner and time a step, which have to be flat from 1,000 to 100,000 of them.

`python tests/bench/owners.py [OWNERS…]`. Each size in a process of its own, so that one does not measure what another
left. Every owner has one prompt of ten spans, one block each, under `coding_agent`, its tool running; nothing is
evicted. Memory is what the process holds resident beyond what it held with an empty pool, all of it: claims, marks,
blocks, run state, requests and their spans. Times are of the processor, a median of `STEPS` owners drawn at random:
a request that goes on and its answer, an event that addresses one owner; then one a lapse, while the clock passes over
the end of every hold. Below, how they stand to those of the first size. At the end the clock moves on by 26 hours, and
what is left is counted: it has to be nothing.
"""

from __future__ import annotations

import gc
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from kvpolicy.policy.checked import open_policy
from kvpolicy.pool import Pool
from kvpolicy.request import Owner, Request, Span
from kvpolicy.steering import Steering
from kvpolicy.workflow.events import Event

SIZES = (1_000, 10_000, 100_000)
SPANS, SIZE, STEPS = 10, 16, 300
MOST_GB = 1.5  # resident, with 100,000 owners
KINDS = ("system", *("turn", "tool_result") * SPANS)


def resident() -> int:
    """Bytes of memory that this process holds now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096


def prompt(number: int, spans: int, turn: int) -> tuple[Request, list[int]]:
    """The prompt of one owner, a span a block; the head is everybody's."""
    parts = tuple(Span(KINDS[i], i * SIZE, (i + 1) * SIZE) for i in range(spans))
    owner = Owner(session=f"session-{number}", agent="coder")
    hashes = [0, *(number * 1_000 + i for i in range(1, spans))]
    return Request(f"{number}.{turn}", owner, spans * SIZE, SIZE, parts), hashes


def ask(steering: Steering, number: int, spans: int, turn: int, now: float) -> None:
    """A request, and an answer that calls a tool."""
    request, hashes = prompt(number, spans, turn)
    steering.request(request, hashes, now)
    steering.finish(request.id, now, tool_calls=[("grep", None)])


def microseconds(step: Callable[[int], None], owners: list[int]) -> float:
    """Median processor time of a step."""
    times = []
    for number in owners:
        began = time.process_time_ns()
        step(number)
        times.append((time.process_time_ns() - began) / 1e3)
    return statistics.median(times)


def measure(owners: int) -> dict[str, float]:
    """One size, in this process."""
    steering = Steering(open_policy(["coding_agent"]), Pool(owners * (SPANS + 2), block_size=SIZE))
    gc.collect()
    before, now = resident(), 0.0
    for number in range(owners):
        ask(steering, number, SPANS, 0, now)
        now += 1e-6
    gc.collect()
    stats, held = steering.stats(), resident()
    some = random.Random(7).sample(range(owners), STEPS)
    result = {
        "owners": stats["owners"],
        "claims": stats["claims"],
        "gb": held / 1e9,
        "bytes": (held - before) / owners,
        "request": microseconds(lambda n: ask(steering, n, SPANS + 1, 1, now), some),
        "event": microseconds(
            lambda n: (steering.event(Event(now, "tool_result", {"session": f"session-{n}"}), now), None)[1], some
        ),
    }
    began = time.process_time()
    steering.advance(now + 40.0)
    result["lapse"] = 1e6 * (time.process_time() - began) / owners
    for hours in (25.0, 26.5):
        steering.advance(now + hours * 3600.0)
    stats = steering.stats()
    result["left"] = stats["owners"] + stats["claims"] + stats["known"] + stats["timers"] + stats["failures"]
    return result


def main() -> int:
    """Print the figures; 1 where a bound is broken."""
    if "--one" in sys.argv:
        print(json.dumps(measure(int(sys.argv[-1]))))
        return 0
    over, smallest = False, None
    for owners in [int(word) for word in sys.argv[1:]] or SIZES:
        done = subprocess.run([sys.executable, __file__, "--one", str(owners)], check=True, capture_output=True)
        row = json.loads(done.stdout)
        print(
            f"  {row['owners']:>7,} owners, {row['claims']:>9,} claims: {row['bytes']:,.0f} bytes an owner, "
            f"{row['gb']:.2f} GB in all; request and answer {row['request']:.0f} us, event {row['event']:.0f} us, "
            f"lapse {row['lapse']:.0f} us; left after 26 h: {row['left']}"
        )
        smallest = smallest or row
        if row is not smallest:
            ratios = ", ".join(f"{name} {row[name] / smallest[name]:.2f}" for name in ("request", "event", "lapse"))
            print(f"{'':>10}against {smallest['owners']:,}: {ratios}")
        over = over or row["left"] != 0 or (owners <= SIZES[-1] and row["gb"] > MOST_GB)
    return int(over)


if __name__ == "__main__":
    sys.exit(main())
