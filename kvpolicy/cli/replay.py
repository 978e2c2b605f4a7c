"""`kvp replay [POLICY…] TIMELINE.jsonl`: requests, events, claims and evictions step by step on the embedded engine.

Reads one step a line and writes one answer a line as it goes; nothing of a step is kept but what the engine holds.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import Any

from kvpolicy.faults import InputFault

HELP = "Step a timeline through the embedded engine: one JSON step a line in, one answer a line out."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`[POLICY…] TIMELINE [--policy P]… [--blocks N] [--block-size B] [--cpu-blocks N] [--disk-blocks N]`."""
    parser.add_argument("policies", nargs="*", metavar="POLICY", help="as --policy")
    parser.add_argument("timeline", metavar="TIMELINE.jsonl", help="one step a line; - reads the standard input")
    parser.add_argument(
        "--policy",
        action="append",
        default=[],
        metavar="P",
        help="a .kvp file, or a packaged policy; default: no rules",
    )
    parser.add_argument("--blocks", type=int, default=4096, metavar="N", help="blocks on the GPU; default: 4096")
    parser.add_argument("--block-size", type=int, default=16, metavar="B", help="tokens a block; default: 16")
    parser.add_argument("--cpu-blocks", type=int, default=0, metavar="N", help="blocks in CPU memory; default: 0")
    parser.add_argument("--disk-blocks", type=int, default=0, metavar="N", help="blocks on disk; default: 0")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: text")


def run(args: argparse.Namespace) -> int:
    """Print the answers. Raises PolicyFault for a policy with errors, InputFault with file and line for a bad step."""
    import orjson

    from kvpolicy.policy.checked import open_policy
    from kvpolicy.replay import Replay
    from kvpolicy.replay.timeline import steps

    policies = [*args.policies, *args.policy]
    if args.timeline.endswith(".kvp"):
        raise InputFault(
            f"{args.timeline}: this is a policy; a timeline is needed behind it: kvp replay POLICY TIMELINE"
        )
    replay = Replay(
        open_policy(policies) if policies else None,
        blocks=args.blocks,
        block_size=args.block_size,
        cpu_blocks=args.cpu_blocks,
        disk_blocks=args.disk_blocks,
    )
    name = "<stdin>" if args.timeline == "-" else args.timeline
    for number, step in steps(args.timeline):
        try:
            answer = replay.step(step)
        except InputFault as fault:
            sys.stdout.flush()
            raise InputFault(f"{name}:{number}: {fault}") from None
        print(orjson.dumps(answer).decode() if args.format == "json" else as_text(answer))
    return 0


def as_text(answer: Mapping[str, Any]) -> str:
    """`3  at 10  request  cached_tokens 32, stored a b`; rows of blocks and hints on lines of their own."""
    short, rows = [], []
    for key, value in answer.items():
        if key in ("step", "at", "do"):
            continue
        if isinstance(value, list) and value and isinstance(value[0], dict):
            rows += [f"    {key.removesuffix('s')}  {_row(row)}" for row in value]
        elif isinstance(value, list):
            short.append(f"{key} {' '.join(map(str, value)) or '-'}")
        elif isinstance(value, dict):
            rows.append(f"    {key}  {_row(value)}")
        else:
            short.append(f"{key} {value}")
    head = f"{answer['step']}  at {answer['at']:g}  {answer['do']}"
    return "\n".join([f"{head}  {', '.join(short)}".rstrip(), *rows])


def _row(row: Mapping[str, Any]) -> str:
    parts = []
    for key, value in row.items():
        if isinstance(value, list):
            inner = [_row(part) if isinstance(part, dict) else str(part) for part in value]
            value = f"[{'; '.join(inner)}]"  # noqa: PLW2901
        elif isinstance(value, dict):
            value = f"({_row(value)})"  # noqa: PLW2901
        if value is not None:
            parts.append(f"{key} {value}")
    return ", ".join(parts)
