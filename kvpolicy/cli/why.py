"""The rest of `kvp explain`: all spans of a request in a run state, and blocks after a timeline.

Reads the documents of `kvp plan` and the timelines of `kvp replay`; writes sentences, or one JSON document. Not a
command of its own.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from kvpolicy.faults import InputFault

_OF_REPLAY = ("block", "step", "blocks", "block_size")
_OF_REQUEST = ("state", "now")


def add_options(parser: argparse.ArgumentParser) -> None:
    """`--request R [--state S] [--now T]`; `--replay TIMELINE --block NAME… [--step N]`, with its sizes."""
    parser.add_argument("--request", metavar="R.json", help="explain every span of this request; - for standard input")
    parser.add_argument("--state", metavar="S.json", help="with --request: events, functions and workflow up to now")
    parser.add_argument("--now", type=float, metavar="SECONDS", help="with --request; default: the last event's time")
    parser.add_argument("--replay", metavar="TIMELINE.jsonl", help="explain blocks as they stand after this timeline")
    parser.add_argument(
        "--block", action="append", metavar="NAME", help="with --replay: a block's hash, or REQUEST:INDEX; repeatable"
    )
    parser.add_argument("--step", type=int, metavar="N", help="with --replay: after this step; default: the last")
    parser.add_argument("--blocks", type=int, metavar="N", help="with --replay: blocks on the GPU; default: 4096")
    parser.add_argument("--block-size", type=int, metavar="B", help="with --replay: tokens a block; default: 16")


def asked(args: argparse.Namespace) -> bool:
    """Whether it is about a request or a block. Raises InputFault for options that do not go together."""
    given = [f"--{name}" for name in ("span", "request", "replay") if getattr(args, name) is not None]
    if len(given) != 1:
        told = f"{' and '.join(given)} do not go together; give one" if given else "give --span, --request or --replay"
        raise InputFault(f"explain: {told}; kvp explain --help says more")
    for names, needs in ((_OF_REPLAY, "--replay"), (_OF_REQUEST, "--request"), (("happened", "assume"), "--span")):
        stray = next((name for name in names if getattr(args, name)), None)
        if stray is not None and needs not in given:
            shown = {"happened": "at or --then"}.get(stray, stray.replace("_", "-"))
            raise InputFault(f"explain: --{shown} goes with {needs} alone")
    if args.replay is not None and not args.block:
        raise InputFault("explain: --replay needs --block NAME, a block's hash or REQUEST:INDEX")
    return args.span is None


def run(args: argparse.Namespace) -> int:
    """Print the explanation. Raises PolicyFault for a policy with errors, InputFault for a document."""
    document, lines = _blocks(args) if args.replay is not None else _request(args)
    print(json.dumps(document, indent=1, ensure_ascii=False) if args.format == "json" else "\n".join(lines))
    return 0


def _request(args: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    from kvpolicy.cli.situation import situation
    from kvpolicy.plan.outline import Outline
    from kvpolicy.policy.explain import explain

    policy, request, state, _ = situation(args)
    outline = Outline(policy, request, state)
    rows, lines = [], []
    for index in outline.layout.order:
        span = outline.layout.spans[index]
        found = explain(policy, outline.subject_of(index, state), state)
        rows.append({"start": span.start, "end": span.end, **found.as_json()})
        lines.append(f"{span.kind} [{span.start}, {'…' if span.end is None else span.end}):")
        lines += [f"  {sentence}" for sentence in found.sentences]
    return {"spans": rows}, lines


def _blocks(args: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    from kvpolicy.policy.checked import open_policy
    from kvpolicy.replay import Replay
    from kvpolicy.replay.timeline import steps
    from kvpolicy.replay.why import why

    policy = open_policy(args.files)
    replay = Replay(
        policy,
        blocks=4096 if args.blocks is None else args.blocks,
        block_size=16 if args.block_size is None else args.block_size,
    )
    name = "<stdin>" if args.replay == "-" else args.replay
    for number, step in steps(args.replay):
        try:
            replay.step(step)
        except InputFault as fault:
            raise InputFault(f"{name}:{number}: {fault}") from None
        if args.step is not None and replay.steps >= args.step:
            break
    if args.step is not None and not 1 <= args.step <= replay.steps:
        raise InputFault(f"--step {args.step}: {name} has {replay.steps} steps")
    rows = [why(replay, block, policy) for block in args.block]
    return {"blocks": rows}, [sentence for row in rows for sentence in row["sentences"]]
