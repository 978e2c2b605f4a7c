"""The policy, the request and its run state that a command line names: what `kvp plan` and `kvp explain` begin with."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kvpolicy.faults import InputFault

if TYPE_CHECKING:
    from kvpolicy.policy.model import State
    from kvpolicy.policy.policy import Policy
    from kvpolicy.request import Request


def situation(args: argparse.Namespace) -> tuple[Policy, Request, State, float]:
    """What `FILE… --request R.json [--state S.json] [--now SECONDS]` mean, and the time it is. Raises PolicyFault for a
    policy with errors, InputFault for a document that cannot be used."""
    from kvpolicy.plan.state import run_state
    from kvpolicy.policy.checked import open_policy
    from kvpolicy.request_json import STDIN, load_json, read_request, read_state

    if args.now is not None and not abs(args.now) < 1e15:
        raise InputFault(f"--now must be a time in seconds, not {args.now}")
    if args.request == args.state == STDIN:
        raise InputFault("--state -: the standard input holds one document, and it is the request")
    policy = open_policy(args.files)
    request = read_request(load_json(args.request), args.request)
    told = read_state({} if args.state is None else load_json(args.state), args.state or "state")
    try:
        state, now = run_state(policy, request, told.events, told.functions, told.workflow, args.now)
    except InputFault as fault:
        raise InputFault(f"{args.state}: {fault}") from None
    return policy, request, state, now
