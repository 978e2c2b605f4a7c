"""`kvp trace list | get NAME | describe | info FILE`: public traces, and what a trace file holds.

Reads the library of known traces and trace files; writes text or JSON to stdout.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable

from kvpolicy.faults import InputFault

HELP = "Get public traces by name, describe kvpolicy's own trace form, and tell what a trace file holds."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`list`, `get NAME`, `describe`, `info FILE|NAME`."""
    parser.add_argument(
        "action",
        choices=("list", "get", "describe", "info"),
        help="list: known names; get: fetch one and print its path; describe: the schema of our own form; "
        "info: what a trace holds",
    )
    parser.add_argument("name", nargs="?", metavar="NAME|FILE", help="for get and info")
    parser.add_argument("--seed", type=int, metavar="N", help="of interleaved sessions and of the generator")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: text")


def run(args: argparse.Namespace) -> int:
    """Do the action. Raises InputFault for an unknown name or a file that is no trace."""
    if (args.name is None) == (args.action in ("get", "info")):
        raise InputFault(f"trace {args.action}: it takes {'a name' if args.name is None else 'no name'}")
    rows = _ACTIONS[args.action](args)
    if args.format == "json" or args.action == "describe":
        print(json.dumps(rows, indent=1))
    elif isinstance(rows, list):
        for row in rows:
            print(f"{row['name']:<22} {row['what']}\n{'':<22} {row['source']} ({row['licence']})\n{'':<22} {row['at']}")
    else:
        for key, value in rows.items():
            print(f"{key:<20} {value}" if args.action == "info" else value)
    return 0


def _list(args: argparse.Namespace) -> list[dict[str, object]]:
    from kvpolicy.simulate.generator import GeneratedTrace
    from kvpolicy.simulate.library import GENERATED, KNOWN, where

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
    return rows


def _get(args: argparse.Namespace) -> dict[str, object]:
    from kvpolicy.simulate.library import KNOWN, obtain

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
