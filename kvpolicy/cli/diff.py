"""`kvp diff A B [--trace T]`: for which spans, in which states, two policies decide differently.

Reads two policies, and a trace where one is named; writes text or one JSON document. As with `diff`: status 0 where
they are the same, 1 where they differ, 2 where one of them cannot be used.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from kvpolicy.faults import InputFault, PolicyFault

if TYPE_CHECKING:
    from kvpolicy.policy.diff.diff import Change, Difference
    from kvpolicy.policy.diff.outcome import Outcome
    from kvpolicy.policy.policy import Policy
    from kvpolicy.simulate.affected import Affected

HELP = (
    "Where two policies decide differently, worked out from their rules. Status 0: nowhere, 1: somewhere, 2: one of "
    "them cannot be used."
)
_SHOWN = 200  # regions in text; JSON has them all


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`A B [--trace T] [--format text|json]`."""
    what = "a .kvp file, or the name of a packaged policy"
    parser.add_argument("before", metavar="A", help=what)
    parser.add_argument("after", metavar="B", help=what)
    parser.add_argument(
        "--trace",
        metavar="T",
        help="also count the tokens and blocks of this trace that are affected: a file, or a name",
    )
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: text")


def run(args: argparse.Namespace) -> int:
    """Compare. Raises InputFault for what cannot be read, a policy with errors among it."""
    from kvpolicy.policy.diff.diff import difference

    before, after = _opened(args.before), _opened(args.after)
    found = difference(before, after)
    counted = None if args.trace is None else _affected(args.trace, before, after)
    if args.format == "json":
        document: dict[str, object] = {
            "same": found.same,
            "regions": [change.as_json() for change in found.changes],
            "others": list(found.others),
            "unsettled": list(found.unsettled),
        }
        if counted is not None:
            document["trace"] = counted.as_json()
        print(json.dumps(document, indent=1, ensure_ascii=False))
    else:
        print("\n".join(as_text(found, counted)))
    return int(not found.same)


def _opened(target: str) -> Policy:
    """A policy. Its errors are no difference, so they are told in one line: it cannot be used here."""
    from kvpolicy.policy.checked import open_policy

    try:
        return open_policy([target])
    except PolicyFault as fault:
        raise InputFault(f"{fault}; kvp check {target} says more") from None


def _affected(name: str, before: Policy, after: Policy) -> Affected:
    from kvpolicy.simulate.affected import affected
    from kvpolicy.simulate.interleaving import Interleaving
    from kvpolicy.simulate.library import find

    trace, told = find(name, Interleaving(), None)
    if told is not None:
        print(f"kvp: {told}", file=sys.stderr)
    return affected(trace, before, after)


def as_text(found: Difference, counted: Affected | None) -> list[str]:
    """One region a paragraph, its properties below it; then what else differs, and the counts of a trace."""
    lines: list[str] = []
    groups: dict[object, list[Change]] = {}
    for change in found.changes:
        groups.setdefault(change.where, []).append(change)
    for place, changes in list(groups.items())[:_SHOWN]:
        lines.append(f"{place}:")
        lines += [f"  {_change(change)}" for change in changes]
    if len(groups) > _SHOWN:
        lines.append(f"… and {len(groups) - _SHOWN} more regions (--format json has all)")
    lines += list(found.others)
    lines += [f"{name}: too many regions to compare them all" for name in found.unsettled]
    if found.same:
        lines.append("the same for every span, whatever the state")
    if counted is not None:
        lines.append(_counts(counted))
    return lines


def _change(change: Change) -> str:
    one, two = _value(change.before), _value(change.after)
    if change.before.text == change.after.text and change.property == "retention":
        return f"{change.property}: {one} → {two}, counted from another event or ended by another bound"
    return f"{change.property}: {one} → {two}"


def _value(outcome: Outcome) -> str:
    by = [] if outcome.rule is None else [outcome.rule.name]
    by += [f"limit at {name}" for name in outcome.limited]
    return outcome.text + (f" ({', '.join(by)})" if by else "")


def _counts(counted: Affected) -> str:
    def share(part: int, whole: int) -> str:
        return f"{part:,} of {whole:,}" + (f" ({100 * part / whole:.1f}%)" if whole else "")

    kinds = ", ".join(f"{kind} {tokens:,}" for kind, tokens in sorted(counted.by_kind.items()))
    return (
        f"in the trace: {share(counted.requests_affected, counted.requests)} requests, "
        f"{share(counted.tokens_affected, counted.tokens)} tokens{f' [{kinds}]' if kinds else ''}, "
        f"{share(counted.blocks_affected, counted.blocks)} blocks"
    )
