"""`kvp advise TRACE --capacity …`: which policy would help this trace, by how much, or that none would.

Reads a trace or a service's decision log; writes a few sentences a size, or JSON.
"""

from __future__ import annotations

import argparse
import os

from kvpolicy.faults import InputFault

HELP = (
    "Read your own trace, or the decision log of a service, and say at each size which policy would save how many "
    "of the tokens that lru computes twice, with a 95 % interval, and how much more memory lru would need for "
    "it; or that none would help."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The trace, sizes and candidates."""
    from kvpolicy.simulate.capacity import UNITS

    parser.add_argument("trace", metavar="TRACE", help="a .jsonl or .jsonl.gz file, or a name (kvp trace list)")
    parser.add_argument("--capacity", action="append", required=True, metavar="N[,N…]", help="sizes, as in simulate")
    parser.add_argument("--capacity-unit", choices=UNITS, default="blocks", help="default: blocks")
    parser.add_argument(
        "--policy",
        action="append",
        metavar="P",
        help="candidates, baselines too; default: the packaged policies that fit",
    )
    parser.add_argument(
        "--seed", type=int, metavar="N", help="of interleaved sessions and of the generator; default: 7"
    )
    parser.add_argument("--coarsen", type=int, default=1, metavar="N", help="source blocks to one, for sessions")
    parser.add_argument("--sample", type=int, metavar="N", help="how many sessions to draw; default: all")
    parser.add_argument("--part", metavar="R/N", help="sessions by the SHA-256 of their id, as in simulate")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="default: one per core")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: text")


def run(args: argparse.Namespace) -> int:
    """Replay, compare, say. Raises InputFault, PolicyFault."""
    from kvpolicy.simulate.advise import advise, as_json
    from kvpolicy.simulate.capacity import in_blocks, read_capacities
    from kvpolicy.simulate.interleaving import Interleaving
    from kvpolicy.simulate.library import find
    from kvpolicy.simulate.progress import Bar
    from kvpolicy.simulate.trace import Facts

    if args.jobs < 1:
        raise InputFault(f"--jobs {args.jobs}: at least one process is needed")
    how = Interleaving(
        seed=7 if args.seed is None else args.seed, coarsen=args.coarsen, sample=args.sample, part=args.part
    )
    trace, sentence = find(args.trace, how, args.seed)
    facts = Facts()
    for _ in trace.calls(facts):
        pass
    sizes = [
        in_blocks(each.number, each.unit or args.capacity_unit, facts.block_size, facts.unique_blocks)
        for each in read_capacities(args.capacity)
    ]
    with Bar(f"replaying {args.trace}") as bar:
        advices = advise(trace, facts, sizes, args.policy or (), args.jobs, bar)
    if args.format == "json":
        import orjson

        rows = [as_json(each, facts.block_size) for each in advices]
        notices = [notice.as_json() for notice in facts.notices]
        document = {"trace": facts.as_json(), "advice": rows, "notices": notices}
        print(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode())
        return 0
    print(f"{args.trace}: {facts.requests:,} requests, {facts.sessions:,} sessions, {facts.unique_blocks:,} blocks")
    for said in (sentence, *(notice.message for notice in facts.notices)):
        if said:
            print(f"  note: {said}")
    for each in advices:
        print(
            f"at {each.capacity:,} blocks ({each.capacity * facts.block_size:,} tokens), lru finds "
            f"{100 * each.lru_hit_ratio:.1f} %:"
        )
        if each.policy is None:
            print(f"  none would help: {each.why}")
        else:
            low, high = each.interval or (0.0, 0.0)
            print(
                f"  {each.policy}: {100 * each.saved:.1f} % [{100 * low:.1f}, {100 * high:.1f}] fewer tokens computed "
                f"twice ({each.saved_tokens:,} in all), {100 * each.hit_ratio:.1f} % found; {each.why}"
            )
            print(
                "  lru would need "
                + ("more than three times the memory" if each.like_lru is None else f"about {each.like_lru:,} blocks")
                + " for as much"
            )
        if each.tried:
            shares = ", ".join(f"{name} {100 * share:.1f} %" for name, share in each.tried.items())
            best = "not replayed, the trace is too long" if each.room is None else f"{100 * each.room:.1f} %"
            print(
                f"  saved by each over the whole trace, of {each.lru_recomputed:,} tokens that lru computes twice: "
                f"{shares}; the best order that knows the future: {best}"
            )
        for name, broke in each.failures.items():
            print(f"  note: planning broke {broke:,} times under {name}; those calls were served as without a policy")
    return 0
