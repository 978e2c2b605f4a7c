"""`kvp plan FILE --request R.json`: what one request's spans and blocks get, and what an engine would be told.

Reads a policy, a request and optionally a run state and an engine's capabilities; writes text or one JSON document.
Nothing is executed: `kvp replay` shows what becomes of a plan.
"""

from __future__ import annotations

import argparse
import json
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvpolicy.adapter import Lowered
    from kvpolicy.directive import Plan
    from kvpolicy.request import Request

HELP = "The directives for one request: per span, per block, and for an engine."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`FILE… --request R.json [--state S.json] [--now SECONDS] [--engine E] [--format text|json]`."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="a .kvp file, or the name of a packaged policy")
    parser.add_argument(
        "--request", required=True, metavar="R.json", help="the request: owner, tokens, spans; - for the standard input"
    )
    parser.add_argument("--state", metavar="S.json", help="events, functions and workflow up to now; or -")
    parser.add_argument("--now", type=float, metavar="SECONDS", help="default: the time of the last event, else 0")
    parser.add_argument("--engine", metavar="E", help="an engine's name, or a JSON file of capabilities")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: text")


def run(args: argparse.Namespace) -> int:
    """Print the plan. Raises PolicyFault for a policy with errors, InputFault for a document that cannot be used."""
    from kvpolicy import plan as planning
    from kvpolicy.cli.situation import situation
    from kvpolicy.plan.rows import as_json

    policy, request, state, now = situation(args)
    plan = planning.plan(policy, request, state, now)
    engine = None if args.engine is None else _engine(args.engine, plan, request)
    if args.format == "json":
        answer = as_json(plan, request)
        if engine is not None:
            answer["engine"] = engine
        print(json.dumps(answer, indent=1))
    else:
        print(_as_text(as_json(plan, request), request, engine))
    return 0


def _engine(name: str, plan: Plan, request: Request) -> dict[str, Any]:
    """The `engine` key: the plan in the engine's form, and what is lost."""
    from kvpolicy.adapter import find_adapter
    from kvpolicy.capabilities_json import read_capabilities
    from kvpolicy.lowering import lower
    from kvpolicy.request_json import load_json

    if name.endswith(".json") or os.path.exists(name):
        engine = read_capabilities(load_json(name), name)
        lowered: Lowered = lower(plan, request, engine)
    else:
        adapter = find_adapter(name)
        engine, lowered = adapter.capabilities, adapter.lower(plan, request)
    return {
        "name": engine.name,
        "version": engine.version,
        "verified": engine.verified,
        "state": lowered.state,
        "payload": lowered.payload,
        "losses": [loss.as_json() for loss in lowered.losses],
        "answer": lowered.answer,
    }


def _as_text(answer: dict[str, Any], request: Request, engine: dict[str, Any] | None) -> str:
    """One line a span, one a stretch of blocks of one rank, then share, notices and the engine's report."""
    from kvpolicy.blocks import lay_out

    spans = lay_out(request)
    told = {row["span"]: row for row in answer["directives"]}
    lines = []
    for index in spans.order:
        span, row = spans.spans[index], told.get(index)
        end = "…" if span.end is None else span.end
        lines.append(f"{span.kind} [{span.start}, {end}): {'no rule' if row is None else _directive(row)}")
        cause = answer["spans"][index].get("dropped_with")
        if cause is not None:
            lines.append(f"  dropped with the {spans.spans[cause].kind} before it, which will not be sent again")
    lines += _stretches(answer["blocks"])
    lines.append(f"share {answer['share']}; " + _until(answer["valid_until"]))
    lines += [f"{notice['code']}: {notice['message']}" for notice in answer["notices"]]
    if engine is not None:
        version = engine["version"] or "(no version)"
        lines.append(f"engine {engine['name']} {version}, {engine['verified']}: {json.dumps(engine['payload'])}")
        lines += [f"  {loss['code']}: {loss['message']}" for loss in engine["losses"]]
    return "\n".join(lines)


def _directive(row: dict[str, Any]) -> str:
    parts = [f"priority {row['priority']}", f"retention {row['retention']}"]
    if row["protected_until"] is not None:
        parts.append(f"protected until {row['protected_until']}")
    if row["ttl"] is not None:
        parts.append(f"ttl {row['ttl']}")
    parts.append(f"for {row['for']}")
    rules = ", ".join(f"{name} by {rule}" for name, rule in row["rules"].items())
    return ", ".join(parts) + f" ({rules})"


def _stretches(blocks: list[dict[str, Any]]) -> list[str]:
    """`blocks 0-1: rank 90`, neighbours of one rank together."""
    lines: list[tuple[int, int, str]] = []
    for block in blocks:
        text = "dropped" if block["dropped"] else f"rank {block['rank']}"
        if block["protected"]:
            text += ", protected"
        if not block["full"]:
            text = "not full yet, claimed by nobody"
        if lines and lines[-1][2] == text:
            lines[-1] = (lines[-1][0], block["index"], text)
        else:
            lines.append((block["index"], block["index"], text))
    return [f"block {a}: {text}" if a == b else f"blocks {a}-{b}: {text}" for a, b, text in lines]


def _until(time: float | None) -> str:
    return "stands until an event" if time is None else f"stands until {time:g} s, or an event"
