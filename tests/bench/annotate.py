"""What annotation costs a call: a stamp with a new scope, with a known one, and telling an event. Bound: 100 µs.

python tests/bench/annotate.py
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

import httpx

import kvpolicy
from kvpolicy.client.transport import stamp

BOUND_US, IMPORT_BOUND_MS, ROUNDS, CALLS = 100.0, 100.0, 15, 2000


def per_call(work: object) -> float:
    """Median over rounds, in µs a call."""
    found = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for number in range(CALLS):
            work(number)  # type: ignore[operator]
        found.append((time.perf_counter() - began) / CALLS * 1e6)
    return statistics.median(found)


def main() -> int:
    """Print the figures; 1 where a bound is missed."""
    service = kvpolicy.Service("http://127.0.0.1:9")
    fresh = iter(range(10**9))

    def known(_: int) -> None:
        stamp(httpx.Request("POST", "http://service/v1"))

    def bare(_: int) -> None:
        httpx.Request("POST", "http://service/v1")

    def new(_: int) -> None:
        with kvpolicy.said(turn=next(fresh)):
            stamp(httpx.Request("POST", "http://service/v1"))

    def event(number: int) -> None:
        service.event("tool_call", session="s", tool="grep", call=str(number))

    with kvpolicy.run(session="s1", run="r1", workflow="w"), kvpolicy.step("writer"):
        base = per_call(bare)
        figures = {
            "a call in a known scope": per_call(known) - base,
            "a call in a new scope": per_call(new) - base,
            "an event told": per_call(event),
        }
    over = False
    for name, took in figures.items():
        over = over or took > BOUND_US
        print(f"  {name:<26} {took:7.1f} µs (bound {BOUND_US:.0f})")
    program = "import time; t = time.perf_counter(); import kvpolicy; print((time.perf_counter() - t) * 1000)"
    loads = [float(subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout)
             for _ in range(9)]  # fmt: skip
    print(f"  {'import kvpolicy':<26} {statistics.median(loads):7.1f} ms (bound {IMPORT_BOUND_MS:.0f})")
    return int(over or statistics.median(loads) > IMPORT_BOUND_MS)


if __name__ == "__main__":
    sys.exit(main())
