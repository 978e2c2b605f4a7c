"""`kvp trace list | get NAME | make NAME | describe | info FILE`: public traces, made ones, what a trace file holds.

Reads the library of known traces, the workloads and trace files; writes text, JSON or a trace to stdout.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import IO

from kvpolicy.faults import InputFault

HELP = (
    "Get public traces by name, make workloads, describe kvpolicy's own trace form, and tell what a trace file holds."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`list`, `get NAME`, `make NAME`, `describe`, `info FILE|NAME`."""
    parser.add_argument(
        "action",
        choices=("list", "get", "make", "describe", "info"),
        help="list: known names; get: fetch one and print its path; make: write a workload, line by line; describe: "
        "the schema of our own form; info: what a trace holds",
    )
    parser.add_argument("name", nargs="?", metavar="NAME|FILE", help="for get, make and info")
    parser.add_argument("--seed", type=int, metavar="N", help="of interleaved sessions and of what is made; default: 7")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=N", help="for make: a setting of the workload; repeatable"
    )
    parser.add_argument("--out", metavar="FILE", help="for make: write there (.gz: compressed) instead of to stdout")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: text")


def run(args: argparse.Namespace) -> int:
    """Do the action. Raises InputFault for an unknown name or a file that is no trace."""
    if (args.name is None) == (args.action in ("get", "make", "info")):
        raise InputFault(f"trace {args.action}: it takes {'a name' if args.name is None else 'no name'}")
    if args.action == "make":
        return _make(args)
    rows = _ACTIONS[args.action](args)
    if args.format == "json" or args.action == "describe":
        print(json.dumps(rows, indent=1))
    elif isinstance(rows, list):
        for row in rows:
            print(f"{row['name']:<22} {row['what']}\n{'':<22} {row['source']} ({row['licence']})\n{'':<22} {row['at']}")
        print(_looked())
    else:
        for key, value in rows.items():
            print(f"{key:<20} {value}" if args.action == "info" else value)
    return 0


def _list(args: argparse.Namespace) -> list[dict[str, object]]:
    from kvpolicy.simulate.generator import GeneratedTrace
    from kvpolicy.simulate.library import GENERATED, KNOWN, where
    from kvpolicy.simulate.workloads.catalogue import WORKLOADS

    rows: list[dict[str, object]] = []
    for name, known in KNOWN.items():
        rows.append(
            {
                "name": name,
                "what": known.what,
                "source": known.source,
                "licence": known.licence,
                "sha256": known.sha256,
                "at": where(name),
            }
        )
    made = GeneratedTrace()
    rows.append(
        {
            "name": GENERATED,
            "what": "our own seeded sessions, made from published figures: no real traffic",
            "source": f"{made.sessions} sessions",
            "licence": "Apache-2.0",
            "sha256": None,
            "at": "made when asked for",
        }
    )
    for name, one in WORKLOADS.items():
        row: dict[str, object] = {"name": name, "what": f"made: {one.what}", "source": f"figures of {one.trace.source}"}
        rows.append({**row, "licence": "Apache-2.0", "sha256": None, "at": f"kvp trace make {name}"})
    return rows


def _looked() -> str:
    """Where the files of known traces were looked for: a row says only where its file is, or will come from."""
    from kvpolicy.simulate.library import cache, data_folders

    folders = ", ".join(str(folder) for folder in data_folders())
    return f"\nFiles are looked for below {folders} (KVPOLICY_DATA names another folder), then in {cache()}."


def _make(args: argparse.Namespace) -> int:
    from kvpolicy.simulate.trace import Facts
    from kvpolicy.simulate.workloads.catalogue import workload
    from kvpolicy.simulate.workloads.writing import rows

    trace = workload(args.name, args.seed, dict(_setting(text) for text in args.set))
    out = _opened(args.out) if args.out else sys.stdout
    for row in rows(trace, Facts()):
        out.write(json.dumps(row, separators=(",", ":")) + "\n")
    if args.out:
        out.close()
    return 0


def _opened(path: str) -> IO[str]:
    try:
        if path.endswith(".gz"):
            import gzip

            return gzip.open(path, "wt", encoding="utf-8")
        return open(path, "w", encoding="utf-8")
    except OSError as fault:
        raise InputFault(f"--out {path}: {fault.strerror}") from None


def _setting(text: str) -> tuple[str, float]:
    key, _, value = text.partition("=")
    try:
        return key.strip(), float(value)
    except ValueError:
        raise InputFault(f"--set {text}: it is KEY=NUMBER, such as sessions=50") from None


def _get(args: argparse.Namespace) -> dict[str, object]:
    from kvpolicy.simulate.library import GENERATED, KNOWN, obtain
    from kvpolicy.simulate.workloads.catalogue import WORKLOADS

    if args.name in WORKLOADS:
        raise InputFault(f"{args.name}: it is made, not fetched: kvp trace make {args.name} --out FILE")
    if args.name == GENERATED:
        raise InputFault(f"{args.name}: it is made when it is replayed and has no file: kvp simulate {args.name} …")
    if args.name not in KNOWN:
        raise InputFault(f"{args.name}: no known trace; known are {', '.join(KNOWN)}")
    return {"path": str(obtain(args.name))}


def _describe(args: argparse.Namespace) -> dict[str, object]:
    from kvpolicy.simulate.own import SCHEMA

    return SCHEMA


def _info(args: argparse.Namespace) -> dict[str, object]:
    from kvpolicy.simulate.interleaving import Interleaving
    from kvpolicy.simulate.library import find
    from kvpolicy.simulate.trace import Facts

    trace, told = find(args.name, Interleaving(), args.seed)
    facts = Facts()
    for _ in trace.calls(facts):
        pass
    rows = facts.as_json()
    rows["notices"] = [notice.as_json() for notice in facts.notices] if told is None else [{"message": told}]
    return rows


_ACTIONS: dict[str, Callable[[argparse.Namespace], dict[str, object] | list[dict[str, object]]]] = {
    "list": _list,
    "get": _get,
    "describe": _describe,
    "info": _info,
}
