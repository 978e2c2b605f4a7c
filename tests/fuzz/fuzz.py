"""`make fuzz SECONDS=600`: try damaged input on every command, on all cores, and say what went wrong.

Starts workers and watches them: one that does not answer for a minute, or dies, has met a finding, too. Ends with the
counts per command, the findings with a folder each (to be run again by `--again FOLDER`) and the seed. Status 1 where
anything was found.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.fuzz import trying
from tests.fuzz.cases import MAKERS, kept

ROOT = Path(__file__).resolve().parents[2]
SILENT_S = 60.0


class Process:
    """One worker, started again where it was lost."""

    def __init__(self, folder: Path, seed: int, seconds: float, commands: list[str]) -> None:
        self.folder, self.seed, self.commands = folder, seed, commands
        self.until = time.monotonic() + seconds
        self.lost = 0
        self.totals: Counter[str] = Counter()
        self.slowest, self.peak = 0.0, 0
        self.start()

    def start(self) -> None:
        """Start it for what is left of its time, from a seed of its own."""
        (self.folder / "now").mkdir(parents=True, exist_ok=True)
        left = max(self.until - time.monotonic(), 1.0)
        words = [sys.executable, "-m", "tests.fuzz.worker", str(self.folder), str(self.seed), str(left)]
        with (self.folder / "log.txt").open("ab") as log:
            self.process = subprocess.Popen([*words, *self.commands], cwd=ROOT, stdout=log, stderr=log)

    def watch(self) -> bool:
        """Whether it still works; takes note where it hangs or has died."""
        status = self.process.poll()
        now = self.folder / "now"
        try:
            silent = time.time() - now.stat().st_mtime > SILENT_S
        except FileNotFoundError:  # between two calls, or before the first
            silent = False
        if status is None and not silent:
            return True
        if status is None:
            self.process.kill()
            self.process.wait()
        self._count()
        if status == 0:
            return False
        self.lost += 1
        place = self.folder / "found" / f"lost{self.lost}"
        if now.exists():
            shutil.copytree(now, place, dirs_exist_ok=True)
            why = "hang: no answer for a minute" if status is None else f"died: status {status}"
            (place / "why.txt").write_text(why + "\n")
        if time.monotonic() > self.until:
            return False
        self.seed += 1_000_000
        self.start()
        return True

    def _count(self) -> None:
        told = self.folder / "counts.json"
        if told.exists():
            row = json.loads(told.read_text())
            self.totals += Counter(row["counts"])
            self.slowest = max(self.slowest, row["slowest_s"])
            self.peak = max(self.peak, row["peak_mib"])
            told.unlink()


def main() -> int:
    """Fuzz, or run one case again."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--command", action="append", choices=list(MAKERS), help="only this one; may be repeated")
    parser.add_argument("--evidence", action="store_true", help="also write docs/evidence/fuzz-DATE.md")
    parser.add_argument("--commit", help="of the tree that runs, where git cannot say it (an exported copy)")
    parser.add_argument("--again", type=Path, metavar="FOLDER", help="run the case of a finding again")
    args = parser.parse_args()
    if args.again is not None:
        with tempfile.TemporaryDirectory() as place:
            told = trying.wrong(kept(args.again), Path(place))
        print(told or "nothing is wrong with it")
        return int(told is not None)
    folder = Path(tempfile.mkdtemp(prefix="kvp-fuzz-"))
    print(f"— {args.seconds:g} s on {args.workers} processes, seed {args.seed}; working in {folder}", flush=True)
    commands = args.command or []
    processes = [Process(folder / str(i), args.seed + 1000 * i, args.seconds, commands) for i in range(args.workers)]
    try:
        while sum(process.watch() for process in processes):
            time.sleep(0.5)
    except KeyboardInterrupt:
        for process in processes:
            process.process.kill()
        print("— stopped")
        return 130
    text, found = summary(processes, args.seconds, args.seed)
    print(text)
    if args.evidence:
        _evidence(text, args)
    if not found:
        shutil.rmtree(folder)
    return int(found)


def summary(processes: list[Process], seconds: float, seed: int) -> tuple[str, bool]:
    """(the closing lines, whether anything was found)."""
    totals: Counter[str] = Counter()
    for process in processes:
        totals += process.totals
    wrong = totals.pop("found", 0)
    lines = [f"{command:<9} {totals[command]:>8} calls" for command in MAKERS]
    slowest, peak = max(p.slowest for p in processes), max(p.peak for p in processes)
    lines.append(f"{'all':<9} {sum(totals.values()):>8} calls in {seconds:g} s, seed {seed}")
    lines.append(f"slowest call {slowest:g} s of processor time (limit {trying.LONGEST_S:g}); peak {peak} MiB")
    findings = sorted(folder for p in processes for folder in (p.folder / "found").iterdir())
    for folder in findings:
        lines.append(f"FOUND {(folder / 'why.txt').read_text().splitlines()[0]}   {folder}")
    wrong += sum(p.lost for p in processes)
    lines.append(f"{wrong} calls went wrong" if wrong else "no crash, no hang, no unreadable answer")
    return "\n".join(lines), bool(findings or wrong)


def _evidence(text: str, args: argparse.Namespace) -> None:
    asked = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    commit = args.commit or asked.stdout.strip() or "unknown"
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    page = ROOT / "docs" / "evidence" / f"fuzz-{today}.md"
    page.parent.mkdir(parents=True, exist_ok=True)
    # Where a finding lies is of this machine; what it is belongs on the page.
    shown = "\n".join(line.split("   ")[0] if line.startswith("FOUND") else line for line in text.splitlines())
    page.write_text(
        f"# Fuzzing, {today}\n\n`make fuzz SECONDS={args.seconds:g} SEED={args.seed}` at commit "
        f"{commit}, {args.workers} processes, Python {sys.version.split()[0]}.\n\n"
        f"What counts as wrong: `tests/fuzz/trying.py`. What was found and mended: `tests/fuzz/found/`.\n\n"
        f"```text\n{shown}\n```\n"
    )
    print(f"— written to {page.relative_to(ROOT)}")


if __name__ == "__main__":
    sys.exit(main())
