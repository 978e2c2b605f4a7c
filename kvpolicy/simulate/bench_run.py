"""Measure cells on all cores, one file of rows, going on where it stopped. Reads cells, appends JSON lines."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

import orjson

from kvpolicy.faults import InputFault
from kvpolicy.simulate.bench_cells import Cell, Row, measure


def rows_of(path: Path) -> list[Row]:
    """The rows measured so far; a last line that was cut off counts as not there."""
    if not path.exists():
        return []
    rows = []
    for line in path.read_bytes().split(b"\n"):
        try:
            row = orjson.loads(line) if line.strip() else None
        except orjson.JSONDecodeError:
            row = None
        if isinstance(row, dict) and "key" in row:
            rows.append(row)
    return rows


def appending(path: Path) -> BinaryIO:
    """The file, open to append whole lines. A last line that was cut off is ended, or the next row would be lost with
    it."""
    file = open(path, "a+b")  # noqa: SIM115 - who called closes it
    if file.seek(0, os.SEEK_END):
        file.seek(-1, os.SEEK_END)
        if file.read(1) != b"\n":
            file.write(b"\n")
    return file


def run(cells: Sequence[Cell], path: Path, jobs: int, told: Callable[[int, int, Row], None]) -> list[Row]:
    """Every cell's row, those in the file as they are. told: (done, of how many, the latest row). Raises InputFault."""
    known = {str(row["key"]): row for row in rows_of(path)}
    missing = [cell for cell in dict.fromkeys(cells) if cell.key() not in known]
    done = len({cell.key() for cell in cells}) - len(missing)
    whole = done + len(missing)
    if missing:
        mark = commit()
        context = multiprocessing.get_context("fork" if os.name == "posix" else "spawn")
        with appending(path) as file, context.Pool(min(jobs, len(missing)), _quiet, maxtasksperchild=8) as pool:
            for row in pool.imap_unordered(_measure, missing):
                if "fault" in row:
                    raise InputFault(str(row["fault"]))
                row["commit"] = mark
                file.write(orjson.dumps(row) + b"\n")
                file.flush()
                known[str(row["key"])] = row
                done += 1
                told(done, whole, row)
    return [known[key] for key in dict.fromkeys(cell.key() for cell in cells)]


def commit() -> str:
    """The checkout's commit, with `+` where files differ from it; KVPOLICY_COMMIT, or `unknown`, without one."""
    stated = os.environ.get("KVPOLICY_COMMIT")
    if stated:
        return stated
    place = Path(__file__).resolve().parents[2]
    try:
        head = _git(place, "rev-parse", "--short=12", "HEAD")
        return head + ("+" if _git(place, "status", "--porcelain", "--untracked-files=no", "--", "kvpolicy") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(place: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(place), *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _quiet() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is answered once, by the process that was called


def _measure(cell: Cell) -> Row:
    try:
        return measure(cell)
    except InputFault as fault:
        return {"fault": str(fault)}
