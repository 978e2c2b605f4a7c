"""`kvp record LOG…`: traffic that was logged, as a kvpolicy trace without text, for `simulate` and `advise`.

Reads request logs, Claude Code's session files, vLLM's log, or the service's decision log; writes the trace to --out or
stdout, and what it passed over to stderr.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

from kvpolicy.faults import InputFault

HELP = (
    "Make a kvpolicy trace out of logs: no text of a prompt or an answer leaves it, nor who asked; names of models and "
    "tools stay. Tokens are estimated (4 bytes each) where the "
    "log has no token ids."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`LOG… [--form F] [--out FILE] [--block-size B]`."""
    forms = ("openai", "claude-code", "vllm", "decisions")
    parser.add_argument("logs", nargs="+", metavar="LOG", help="files of one form; - is the standard input")
    parser.add_argument("--form", choices=forms, help="default: as the first line shows")
    parser.add_argument("--out", metavar="FILE", help="default: the standard output")
    parser.add_argument("--block-size", type=int, default=16, metavar="B", help="tokens a block; default: 16")


def run(args: argparse.Namespace) -> int:
    """Write the trace. Raises InputFault for a file that cannot be read, or that has no call in it."""
    from kvpolicy.cli.outputs import refuse_overwriting
    from kvpolicy.record.calls import Recorded, Recording, write
    from kvpolicy.record.sources import FORMS, form_of
    from kvpolicy.record.times import APART, put_in_time

    refuse_overwriting({"--out": args.out}, args.logs)
    if args.block_size < 1:
        raise InputFault(f"--block-size: a block has at least one token, not {args.block_size}")
    calls: list[Recorded] = []
    counts: Counter[str] = Counter()
    forms: set[str] = set()
    for name in args.logs:
        lines = _lines(name)
        form = args.form or next((shown for line in lines[:20] if (shown := form_of(line)) is not None), None)
        if form is None:
            raise InputFault(f"{name}: no form is recognised in it; state one with --form")
        found = list(FORMS[form](lines, counts))
        if not found:
            raise InputFault(f"{name}: there is no request in it, read as {form}; state another with --form")
        forms.add(form)
        calls += found
    untimed = put_in_time(calls)
    recording = Recording(f"recorded: {', '.join(sorted(forms))}", args.block_size)
    if args.out is None:
        number = write(calls, recording, sys.stdout)
    else:
        with open(args.out, "w", encoding="utf-8") as out:
            number = write(calls, recording, out)
    passed = counts["unread"]
    told = ["1 call" if number == 1 else f"{number} calls"]
    told += [f"{passed} line{'' if passed == 1 else 's'} could not be used"] if passed else []
    if untimed and number > 1:  # one call stands at the beginning, whatever its time
        which, them = ("1 call", "was put {} s behind the one before it")
        if untimed > 1:
            which, them = f"{untimed} calls", "were put {} s behind the one before them"
        told.append(f"{which} without a time that can be read {them.format(f'{APART:g}')}")
    print("; ".join(told), file=sys.stderr)
    return 0


def _lines(name: str) -> list[str]:
    text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8", errors="replace")
    return text.split("\n")  # splitlines would cut a JSON string at U+2028 and its like
