"""`kvp bench run EXPERIMENT…` measures, `kvp bench report FILE…` writes the page, `kvp bench list` names them.

Reads `simulate.bench_*`; writes a file of rows, one JSON object a line, and from it JSON, HTML and Markdown.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from time import monotonic

from kvpolicy.faults import InputFault

HELP = (
    "Measure policies with several seeds, so that a claim can be refuted: run EXPERIMENT… measures what is missing "
    "and may be stopped at any time; report writes one page with plots, intervals and the command of each figure."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to do, and the files."""
    parser.add_argument("do", choices=("run", "report", "list"), help="measure, write the page, or name experiments")
    parser.add_argument("names", nargs="*", default=(), metavar="EXPERIMENT", help="default: all (kvp bench list)")
    parser.add_argument(
        "--rows",
        default="bench.jsonl",
        metavar="FILE",
        help="the rows measured, read and added to; default: bench.jsonl",
    )
    parser.add_argument("--policy", action="append", metavar="P", help="run: these contenders only; may be repeated")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="processes; default: one per core"
    )
    parser.add_argument("--html", metavar="FILE", help="report: write the page as HTML")
    parser.add_argument("--md", metavar="FILE", help="report: write it as Markdown; without any file, to stdout")
    parser.add_argument("--json", metavar="FILE", help="report: write the figures as JSON")


def run(args: argparse.Namespace) -> int:
    """Measure or report. Raises InputFault."""
    from kvpolicy.simulate.bench_experiments import EXPERIMENTS

    unknown = [name for name in args.names if name not in EXPERIMENTS]
    if unknown:
        raise InputFault(f"{unknown[0]}: no such experiment; there are {', '.join(EXPERIMENTS)}")
    if args.do == "list":
        for name, experiment in EXPERIMENTS.items():
            print(f"{name:<10} {len(experiment.cells()):>4} runs  {experiment.about}")
        return 0
    names = list(dict.fromkeys(args.names)) or list(EXPERIMENTS)
    return _measure(args, names) if args.do == "run" else _report(args, names)


def _measure(args: argparse.Namespace, names: list[str]) -> int:
    from kvpolicy.cli.outputs import refuse_overwriting
    from kvpolicy.simulate.bench_experiments import EXPERIMENTS
    from kvpolicy.simulate.bench_run import run as measure

    refuse_overwriting({"--rows": args.rows}, args.policy or ())

    if args.jobs < 1:
        raise InputFault(f"--jobs {args.jobs}: at least one process is needed")
    cells = [cell for name in names for cell in EXPERIMENTS[name].cells()]
    if args.policy:
        contenders = list(dict.fromkeys(cell.policy for cell in cells))
        strange = next((policy for policy in args.policy if policy not in contenders), None)
        if strange is not None:
            there = ", ".join(contenders)
            raise InputFault(f"--policy {strange}: no contender of {', '.join(names)}; there are {there}")
        cells = [cell for cell in cells if cell.policy in args.policy]
    began = monotonic()

    def told(done: int, whole: int, row: dict[str, object]) -> None:
        hints = "" if row["hints"] == "true" else f", hints {row['hints']}"
        what = f"{row['policy']} at {row['percent']:g} %, seed {row['seed']}{hints}"
        print(f"{done}/{whole} after {monotonic() - began:.0f} s: {what}", file=sys.stderr, flush=True)

    rows = measure(cells, Path(args.rows), args.jobs, told)
    print(f"{len(rows)} rows in {args.rows}")
    return 0


def _report(args: argparse.Namespace, names: list[str]) -> int:
    from kvpolicy.cli.outputs import refuse_overwriting
    from kvpolicy.simulate.bench_arithmetic import figures
    from kvpolicy.simulate.bench_run import rows_of
    from kvpolicy.simulate.report_page import as_html, as_json, as_markdown

    refuse_overwriting({"--html": args.html, "--md": args.md, "--json": args.json}, [args.rows])
    path = Path(args.rows)
    rows = rows_of(path)
    if not rows:
        raise InputFault(f"{path}: no rows; kvp bench run measures them")
    found = {name: figures(name, rows) for name in names}
    found = {name: each for name, each in found.items() if each.lines}
    if not found:
        raise InputFault(f"{path}: no rows of {', '.join(names)}; kvp bench run measures them")
    written = {args.html: as_html, args.md: as_markdown, args.json: as_json}
    for file, write in written.items():
        if file is not None:
            Path(file).write_text(write(found), encoding="utf-8")
    if not any(written):
        print(as_markdown(found))
    return 0
