"""What checking costs: a cold `kvp check`, the analysis of rules, and resolving one span.

`python tests/bench/analysis.py [RULES]`. Exit status 1 where a figure is over its bound: 1,000 realistic rules read
and checked in 2 s by a cold process, analysed in 1 s; RULES (20,000) analysed in 10 s; one span of a policy of 200
rules resolved in 20 µs. The other policies are made to be hard, and have the same bounds.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent))

from conditions import main as conditions

from kvpolicy.language.load import load_text
from kvpolicy.policy.analysis import analyse
from kvpolicy.policy.compile import compile
from kvpolicy.policy.model import Subject
from kvpolicy.policy.snapshot import Snapshot
from kvpolicy.request import Owner
from policies import GENERATORS

MANY = 20_000
BOUND_COLD_S, BOUND_S, BOUND_MANY_S, BOUND_US = 2.0, 1.0, 10.0, 20.0
RUNS = 5


def cold(text: str) -> float:
    """Seconds of a cold `kvp check`, the median of some processes."""
    kvp = str(Path(sys.executable).with_name("kvp"))
    times = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "thousand.kvp"
        file.write_text(text, encoding="utf-8")
        for _ in range(RUNS + 1):
            start = time.perf_counter()
            done = subprocess.run([kvp, "check", str(file)], capture_output=True, text=True, check=False)
            times.append(time.perf_counter() - start)
            if done.returncode:
                sys.exit(done.stdout + done.stderr)
    return median(times[1:])


def analysis(text: str, runs: int) -> tuple[float, int]:
    """Seconds from a parsed text to its diagnostics: compiling and every question; and how many there are."""
    files = load_text(text, "many.kvp").files
    assert files is not None
    best, told = float("inf"), 0
    for _ in range(runs):
        start = time.perf_counter()
        told = len(analyse(files))
        best = min(best, time.perf_counter() - start)
    return best, told


def resolving(rules: int = 200) -> tuple[float, float]:
    """Microseconds to resolve one span: of some that were met before, and of one whose attributes are new."""
    files = load_text(GENERATORS["realistic"](rules), "some.kvp").files
    assert files is not None
    policy, state = compile(files), Snapshot()
    spans = [
        Subject(kind, {"agent": f"a{i}", "depth": i % 6, "tool": f"t{i % 7}", "tokens": 100 * i}, Owner())
        for i in range(rules // 6)
        for kind in ("turn", "tool_result", "document")
    ]
    start = time.perf_counter()
    for span in spans:
        policy.resolve(span, state)
    first = (time.perf_counter() - start) / len(spans) * 1e6
    best = float("inf")
    for _ in range(RUNS):
        start = time.perf_counter()
        for _ in range(20):
            for span in spans:
                policy.resolve(span, state)
        best = min(best, (time.perf_counter() - start) / (20 * len(spans)) * 1e6)
    return best, first


def main() -> int:
    """Measure, print, compare."""
    many = int(sys.argv[1]) if len(sys.argv) > 1 else MANY
    conditions()
    over = 0

    def tell(name: str, value: float, bound: float, unit: str, more: str = "") -> None:
        nonlocal over
        over += value > bound
        print(f"{name:<34} {value:8.2f} {unit} ({'within' if value <= bound else 'OVER'} {bound:g} {unit}){more}")

    tell("kvp check, 1,000 rules, cold", cold(GENERATORS["realistic"](1000)), BOUND_COLD_S, "s")
    for rules, bound, runs in ((1000, BOUND_S, 3), (many, BOUND_MANY_S, 1)):
        for name, generate in GENERATORS.items():
            text = generate(rules)
            seconds, told = analysis(text, runs)
            tell(f"{name}, {rules:,} rules", seconds, bound, "s ", f", {len(text) / 1e6:.2f} MB, {told} faults told")
    again, first = resolving()
    tell("one span, 200 rules", again, BOUND_US, "µs", f"; met for the first time {first:.0f} µs")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
