"""`kvp simulate TRACE…`: replay traces under policies and baselines at several capacities, beside LRU and the bound.

Reads traces by file or name (`simulate.library`); writes a table or the JSON document of the interfaces to stdout.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kvpolicy.faults import InputFault

if TYPE_CHECKING:
    from kvpolicy.simulate.interleaving import Interleaving

HELP = (
    "Replay a trace on the embedded engine under policies and baselines, and count what each would have found in the "
    "cache. gap_closed always refers to lru and belady-resident at the same capacity; both are replayed for it even if "
    "they are not asked for (belady-resident up to 50 million block references)."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the interfaces, and how sessions without start times are laid beside each other."""
    from kvpolicy.simulate.capacity import UNITS

    parser.add_argument(
        "traces", nargs="+", metavar="TRACE", help="a .jsonl or .jsonl.gz file, or a name (kvp trace list)"
    )
    parser.add_argument(
        "--policy",
        action="append",
        metavar="P",
        help="a .kvp file, a packaged policy, or a baseline (docs/baselines), such as lru, sglang-lfu, arc, belady, "
        "belady-resident; may be repeated; default: lru",
    )
    parser.add_argument(
        "--capacity",
        action="append",
        required=True,
        metavar="N[,N…]",
        help="size of the cache; several allowed; N%% is a share of the trace's unique blocks",
    )
    parser.add_argument(
        "--capacity-unit",
        choices=UNITS,
        default="blocks",
        help="of sizes without a sign of their own; percent: of the trace's unique blocks; default: blocks",
    )
    parser.add_argument(
        "--seed", type=int, metavar="N", help="of interleaved sessions and of the generator; default: 7"
    )
    parser.add_argument(
        "--window", default="4h", metavar="D", help="session starts are spread over this time; default: 4h"
    )
    parser.add_argument(
        "--gap-cap", default="1h", metavar="D", help="longest time between two calls of a session; default: 1h"
    )
    parser.add_argument(
        "--coarsen", type=int, default=1, metavar="N", help="source blocks to one block, for sessions; default: 1"
    )
    parser.add_argument("--sample", type=int, metavar="N", help="how many sessions to draw; default: all")
    parser.add_argument(
        "--part", metavar="R/N", help="sessions whose SHA-256 of the id leaves R modulo N; !R/N: the others"
    )
    parser.add_argument(
        "--engine-model",
        metavar="NAME[:KEY=VALUE,…]",
        help="requests take time on a modelled engine: h100-8b, a100-8b, h200-8b or a100-infercept; its constants may "
        "be changed, as in h100-8b:link=2e9,chunk=512",
    )
    parser.add_argument(
        "--cpu-blocks", type=int, default=0, metavar="N", help="blocks of a CPU tier, with --engine-model; default: 0"
    )
    parser.add_argument(
        "--disk-blocks", type=int, default=0, metavar="N", help="blocks of a disk tier, with --engine-model; default: 0"
    )
    parser.add_argument(
        "--queue",
        choices=("fcfs", "session"),
        default="fcfs",
        help="who is admitted first, with --engine-model: who came first, or whose session began first (vLLM's "
        "priority scheduling with that as the priority); default: fcfs",
    )
    parser.add_argument(
        "--price-ratio",
        type=float,
        default=10.0,
        metavar="X",
        help="price of an uncached over a cached token; default: 10",
    )
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="processes; default: one per core"
    )
    parser.add_argument("--html", metavar="FILE", help="also write a page with a chart")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: text")


def run(args: argparse.Namespace) -> int:
    """Replay and report. Raises InputFault or PolicyFault for what cannot be used."""
    from kvpolicy.cli.outputs import refuse_overwriting
    from kvpolicy.simulate.capacity import read_capacities
    from kvpolicy.simulate.library import KNOWN, find, where
    from kvpolicy.simulate.names import contender
    from kvpolicy.simulate.progress import Bar
    from kvpolicy.simulate.report import document, failures, table
    from kvpolicy.simulate.simulate import simulate

    if args.engine_model is None and (args.cpu_blocks or args.disk_blocks):
        raise InputFault("--cpu-blocks and --disk-blocks are tiers of an --engine-model; name one, such as h100-8b")
    if args.engine_model is None and args.queue != "fcfs":
        raise InputFault("--queue is the order of an --engine-model's queue; name one, such as h100-8b")
    if not args.price_ratio > 0:
        raise InputFault(f"--price-ratio {args.price_ratio:g}: a price ratio is above 0, such as 10")
    if args.jobs < 1:
        raise InputFault(f"--jobs {args.jobs}: at least one process is needed")
    if args.html is not None and len(args.traces) > 1:
        raise InputFault("--html takes one trace; give each its own call")
    known = [where(name) for name in args.traces if name in KNOWN]
    refuse_overwriting({"--html": args.html}, [*args.traces, *known, *(args.policy or ())])
    if args.engine_model is not None:
        return _closed(args)
    capacities = read_capacities(args.capacity)
    contenders = [contender(name) for name in dict.fromkeys(args.policy or ["lru"])]
    interleaving = _interleaving(args)
    documents, tables = [], []
    for name in args.traces:
        trace, told = find(name, interleaving, args.seed)
        if told is not None:
            print(f"kvp: {told}", file=sys.stderr)
        with Bar(f"replaying {name}") as bar:
            outcome = simulate(trace, contenders, capacities, args.capacity_unit, args.jobs, bar)
        for sentence in failures(outcome):
            print(f"kvp: {sentence}", file=sys.stderr)
        documents.append({"name": name, **document(outcome, args.price_ratio)})
        tables.append(table(name, outcome))
        if args.html is not None:
            from kvpolicy.simulate.chart import page

            Path(args.html).write_text(page(name, outcome), encoding="utf-8")
    _print(args, documents, tables)
    return 0


def _closed(args: argparse.Namespace) -> int:
    from kvpolicy.simulate.capacity import read_capacities
    from kvpolicy.simulate.closed.compare import Engine, compare
    from kvpolicy.simulate.closed.models import engine_model
    from kvpolicy.simulate.closed.report import document, failures, table
    from kvpolicy.simulate.library import find
    from kvpolicy.simulate.names import contender
    from kvpolicy.simulate.progress import Bar

    if args.html is not None:
        raise InputFault("--html draws hit ratios of plain replays; leave it out with --engine-model")
    if args.cpu_blocks < 0 or args.disk_blocks < 0:
        raise InputFault("--cpu-blocks and --disk-blocks: a tier cannot have fewer than 0 blocks")
    engine = Engine(engine_model(args.engine_model), args.cpu_blocks, args.disk_blocks, args.queue)
    capacities = read_capacities(args.capacity)
    contenders = [contender(name) for name in dict.fromkeys(args.policy or ["lru"])]
    documents, tables = [], []
    for name in args.traces:
        trace, told = find(name, _interleaving(args), args.seed)
        if told is not None:
            print(f"kvp: {told}", file=sys.stderr)
        with Bar(f"simulating {name}") as bar:
            outcome = compare(trace, contenders, capacities, engine, args.capacity_unit, args.jobs, bar)
        for sentence in failures(outcome):
            print(f"kvp: {sentence}", file=sys.stderr)
        documents.append({"name": name, **document(outcome, args.price_ratio)})
        tables.append(table(name, outcome))
    _print(args, documents, tables)
    return 0


def _print(args: argparse.Namespace, documents: list[dict[str, object]], tables: list[str]) -> None:
    if args.format == "text":
        print("\n\n".join(tables))
        return
    import orjson

    print(orjson.dumps(_joined(documents), option=orjson.OPT_INDENT_2).decode())


def _interleaving(args: argparse.Namespace) -> Interleaving:
    from kvpolicy.simulate.interleaving import Interleaving

    return Interleaving(
        seed=7 if args.seed is None else args.seed,
        window_s=_duration("--window", args.window),
        gap_cap_s=_duration("--gap-cap", args.gap_cap),
        coarsen=args.coarsen,
        sample=args.sample,
        part=args.part,
    )


def _duration(option: str, text: str) -> float:
    from kvpolicy.units import UnitFault, parse_duration

    try:
        return parse_duration(text)
    except UnitFault as fault:
        raise InputFault(f"{option} {text or '(nothing)'}: {fault}") from None


def _joined(documents: list[dict[str, object]]) -> dict[str, object]:
    """One document: of one trace as the interfaces have it; of several, the first one's `trace`, every run with the
    name of its trace, and all of them under `traces`."""
    if len(documents) == 1:
        return {key: value for key, value in documents[0].items() if key != "name"}
    runs = [{"trace": one["name"], **run} for one in documents for run in _list(one, "runs")]
    told = [{"trace": one["name"], **notice} for one in documents for notice in _list(one, "notices")]
    traces = [{"name": one["name"], **_dict(one["trace"])} for one in documents]
    engine = {key: value for key, value in documents[0].items() if key == "engine_model"}
    return {"trace": documents[0]["trace"], **engine, "runs": runs, "notices": told, "traces": traces}


def _list(document: dict[str, object], key: str) -> list[dict[str, object]]:
    rows = document[key]
    assert isinstance(rows, list)
    return rows


def _dict(value: object) -> dict[str, object]:
    assert isinstance(value, dict)
    return value
