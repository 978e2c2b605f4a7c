"""What a fault beside the gateway adds to a request: Redis stopped, a tokenizer hung, a policy that raises, no events.

    python tests/bench/service_fail_open.py [ROUNDS]

Two gateways as processes of their own, alike but for the fault, are asked in turn by one client over kept connections;
every prompt is new, so that nothing of it is known. Printed: the median and the 99th percentile of the time to the
answer without the fault, what the fault adds to them with 95 % intervals by bootstrap, and the most that it added to
one of the first five requests, while nobody has noticed it yet. Ends with 1 where the median added is above the target.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import httpx

from tests.bench.conditions import processor
from tests.service.faults import FAULTS, pair, request
from tests.service.test_edge_passing import PATH

TARGET_S = 0.020
RESAMPLED = 1000


def quantile(rows: Sequence[float], part: float) -> float:
    """The value below which this part of the rows is."""
    ordered = sorted(rows)
    return ordered[min(int(part * len(ordered)), len(ordered) - 1)]


def interval(pairs: Sequence[tuple[float, float]], of: Callable[[Sequence[tuple[float, float]]], float]) -> str:
    """A figure of the pairs in milliseconds, with 95 % of what resampled pairs give."""
    chance = random.Random(1)
    found = sorted(of(chance.choices(pairs, k=len(pairs))) for _ in range(RESAMPLED))
    low, high = found[int(0.025 * RESAMPLED)], found[int(0.975 * RESAMPLED)]
    return f"{of(pairs) * 1e3:6.2f} ({low * 1e3:.2f} to {high * 1e3:.2f})"


def added(part: float) -> Callable[[Sequence[tuple[float, float]]], float]:
    """How much later this part of the requests is answered with the fault."""
    return lambda pairs: quantile([b for _, b in pairs], part) - quantile([a for a, _ in pairs], part)


def measured(fault: str, rounds: int) -> list[tuple[float, float]]:
    """Seconds without and with the fault, in turn."""
    rows = []
    with (
        tempfile.TemporaryDirectory() as folder,
        pair(fault, Path(folder)) as made,
        httpx.Client(timeout=120) as well,
        httpx.Client(timeout=120) as broken,
    ):
        for number in range(rounds):
            took = []
            for client, at in ((well, made.well), (broken, made.broken)):
                data = request(f"turn {number}")
                began = time.perf_counter()
                assert client.post(at + PATH, json=data).status_code == 200
                took.append(time.perf_counter() - began)
            rows.append((took[0], took[1]))
    return rows


def main(rounds: int = 300) -> int:
    print(f"{processor()}, load {os.getloadavg()[0]:.1f}, {rounds} pairs each; milliseconds")
    late = False
    for fault in FAULTS:
        pairs = measured(fault, rounds)
        p50, p99 = (quantile([a for a, _ in pairs], part) * 1e3 for part in (0.5, 0.99))
        print(f"{fault:10} without {p50:.2f}, p99 {p99:.2f}; added p50 {interval(pairs, added(0.5))}, "
              f"p99 {interval(pairs, added(0.99))}; first {max(b - a for a, b in pairs[:5]) * 1e3:.2f}")  # fmt: skip
        late |= added(0.5)(pairs) > TARGET_S
    return int(late)


if __name__ == "__main__":
    sys.exit(main(*(int(word) for word in sys.argv[1:])))
