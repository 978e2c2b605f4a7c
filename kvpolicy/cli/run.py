"""`kvp run ENGINE …`: start an inference engine so that it follows ranks, with all its own flags passed on.

The adapter's launcher makes the command (`kvpolicy.launching`); this runs it, passes signals on and ends with its
exit status. Notes of what was added go to stderr; stdout is the engine's.
"""

from __future__ import annotations

import argparse
import sys

HELP = "Start an inference engine so that its eviction follows ranks. All its own flags are passed on."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`ENGINE …`."""
    parser.add_argument("engine", metavar="ENGINE", help="vllm")
    parser.add_argument(
        "words",
        metavar="…",
        nargs=argparse.REMAINDER,
        help="the engine's own flags; ours among them begin with --kvp-: --kvp-python PYTHON (the engine's), "
        "--kvp-channel ADDRESS, --kvp-no-events, --kvp-off, --kvp-show (print the command, run nothing)",
    )


def run(args: argparse.Namespace) -> int:
    """Run the engine; its exit status. Raises InputFault where it cannot be started."""
    from kvpolicy.faults import InputFault
    from kvpolicy.launching import find_launcher, supervise

    words = [word for word in args.words if word != "--kvp-show"]
    launch = find_launcher(args.engine)(words)
    for note in launch.notes:
        print(f"kvp run: {note}", file=sys.stderr, flush=True)
    if len(words) < len(args.words):
        import shlex

        assignments = [f"{name}={shlex.quote(value)}" for name, value in launch.environment.items()]
        print(" ".join([*assignments, shlex.join(launch.command)]))
        return 0
    try:
        return supervise(launch)
    except OSError as fault:
        raise InputFault(f"run {args.engine}: {launch.command[0]} cannot be started: {fault.strerror}") from fault
