"""The conditions of a measurement, to be printed beside its figures: machine, Python, load, and a calibration loop.

`python tests/bench/conditions.py`. The loop is the same everywhere, so figures of two machines can be set side by
side.
"""

from __future__ import annotations

import os
import platform
import time


def calibration_s() -> float:
    """Seconds for a fixed million of integer additions and dict reads; the best of three."""
    table = {i: i for i in range(256)}
    best = float("inf")
    for _ in range(3):
        start, total = time.perf_counter(), 0
        for i in range(1_000_000):
            total += table[i & 255]
        best = min(best, time.perf_counter() - start)
    return best


def processor() -> str:
    """The processor's name where the system tells it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as info:
            return next(line.split(":", 1)[1].strip() for line in info if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def main() -> None:
    """Print them."""
    load = " ".join(f"{x:.2f}" for x in os.getloadavg())
    print(f"conditions: {processor()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}")
    print(
        f"            Python {platform.python_version()}, load {load}, calibration loop {calibration_s() * 1e3:.0f} ms"
    )


if __name__ == "__main__":
    main()
