"""One fuzzing process: `python -m tests.fuzz.worker FOLDER SEED SECONDS [COMMAND…]`, started by `tests.fuzz.fuzz`.

The case being tried lies in FOLDER/now, so that it is there when the process does not survive it. Findings go to
FOLDER/found, one folder for each place in the code; the counts to FOLDER/counts.json.
"""

from __future__ import annotations

import hashlib
import json
import resource
import shutil
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random

from tests.fuzz import trying
from tests.fuzz.cases import MAKERS, Case, case, grown

MEMORY = 1 << 30  # bytes that a call may take beyond what the process has at its start
BATCH = 400


class Worker:
    """folder: where it works; until: the monotonic time at which it ends."""

    def __init__(self, folder: Path, until: float, commands: tuple[str, ...]) -> None:
        self.folder, self.until, self.commands = folder, until, commands
        self.counts: Counter[str] = Counter()
        self.slowest = 0.0

    def batch(self, number: int) -> None:
        """Try a batch of cases, drawn from one number."""
        chance, texts = Random(number), grown(number)
        for _ in range(BATCH):
            if time.monotonic() > self.until:
                break
            self.attempt(case(chance, texts, self.commands))

    def attempt(self, tried: Case) -> None:
        """Try one case and keep it where something is wrong."""
        now = self.folder / "now"
        shutil.rmtree(now, ignore_errors=True)
        now.mkdir()
        began = time.process_time()
        told = trying.wrong(tried, now)
        self.slowest = max(self.slowest, time.process_time() - began)
        self.counts[tried.words[0]] += 1
        if told is not None:
            kind = told.splitlines()[0]
            place = self.folder / "found" / hashlib.sha256(f"{tried.words[0]} {kind}".encode()).hexdigest()[:10]
            self.counts["found"] += 1
            smaller = not place.exists() or _size(now) < _size(place)
            if smaller:
                shutil.rmtree(place, ignore_errors=True)
                shutil.copytree(now, place)
                (place / "why.txt").write_text(told, encoding="utf-8", errors="backslashreplace")

    def told(self) -> None:
        """Write the counts."""
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        row = {"counts": self.counts, "slowest_s": round(self.slowest, 2), "peak_mib": peak}
        (self.folder / "counts.json").write_text(json.dumps(row))


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir() if file.name != "why.txt")


def main(words: list[str]) -> None:
    """Work until the time is over."""
    folder, number = Path(words[0]), int(words[1])
    worker = Worker(folder, time.monotonic() + float(words[2]), tuple(words[3:]) or tuple(MAKERS))
    (folder / "found").mkdir(parents=True, exist_ok=True)
    trying.warm()
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    while time.monotonic() < worker.until:
        worker.batch(number)
        worker.told()
        number += 1


if __name__ == "__main__":
    main(sys.argv[1:])
