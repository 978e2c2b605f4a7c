"""`kvp test FILE… [--coverage] [--mutate]`: run the test blocks of policies, and try whether they notice changes.

Tests stand in the files themselves and in `NAME.test.kvp` beside `NAME.kvp`; all files of one call are one set.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from kvpolicy.faults import PolicyFault

if TYPE_CHECKING:
    from kvpolicy.policy.mutate import Mutation
    from kvpolicy.policy.results import Outcome, Results

HELP = "Run the test blocks of policies. NAME.test.kvp beside NAME.kvp is read along with it."
_SUFFIX, _TEST_SUFFIX = ".kvp", ".test.kvp"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`FILE… [--coverage] [--mutate] [--format text|json]`."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="a .kvp file, or the name of a packaged policy")
    parser.add_argument("--coverage", action="store_true", help="say which rule has decided which property")
    parser.add_argument(
        "--mutate",
        action="store_true",
        help="say what can be changed or deleted without a test noticing; then status 1",
    )
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: text")


def run(args: argparse.Namespace) -> int:
    """Run the tests; 1 where one fails, where there is none, or where the policy has errors."""
    from kvpolicy.policy.checked import open_policy
    from kvpolicy.policy.testing import run_tests

    try:
        policy = open_policy(with_tests(args.files))
        results = run_tests(policy)
    except PolicyFault as fault:
        if args.format == "json":
            rows = [{"file": d.place.file, **d.as_json()} for d in fault.diagnostics]
            print(json.dumps({"tests": [], "passed": 0, "failed": 0, "coverage": None, "diagnostics": rows}, indent=1))
        raise
    mutation = None
    if args.mutate and results.fine:
        from kvpolicy.policy.mutate import mutate

        mutation = mutate(policy)
    if args.format == "json":
        document = results.as_json()
        if args.mutate:
            document["mutation"] = None if mutation is None else mutation.as_json()
        print(json.dumps(document, indent=1, ensure_ascii=False))
    else:
        print(as_text(results, coverage=args.coverage))
        if mutation is not None:
            print("\n".join(_mutated(mutation)))
        elif args.mutate:
            print("mutation: not tried, for the tests do not pass as it is")
    return int(not results.fine or mutation is not None and bool(mutation.survivors))


def with_tests(targets: list[str]) -> list[str]:
    """The files asked for, each with the test file that stands beside it; a test file alone, with its policy."""
    found: list[str] = []
    for target in targets:
        found.append(target)
        if target.endswith(_TEST_SUFFIX):
            found.append(target.removesuffix(_TEST_SUFFIX) + _SUFFIX)
        elif target.endswith(_SUFFIX):
            found.append(target.removesuffix(_SUFFIX) + _TEST_SUFFIX)
        elif not Path(target).exists():
            from kvpolicy.language.load import packaged_text

            if packaged_text(f"{target}.test") is not None:
                found.append(f"{target}.test")
    asked = set(targets)
    return [name for name in dict.fromkeys(found) if name in asked or not name.endswith(_SUFFIX) or Path(name).exists()]


def as_text(results: Results, *, coverage: bool) -> str:
    """What a person reads: failing tests with the rows that differ, the count, and coverage if asked."""
    lines = [line for outcome in results.tests if not outcome.passed for line in _failed(outcome)]
    if not results.tests:
        lines.append("no tests: nothing has been shown")
    lines.append(f"{results.passed} passed, {results.failed} failed")
    if coverage:
        shown = results.coverage.as_json()
        lines.append(f"coverage: {shown['decided']} of {shown['of']} rule × property pairs decided at least once")
        never = shown["never"]
        assert isinstance(never, list)
        lines += [f"  never: {pair}" for pair in never]
        used = shown["used"]
        assert isinstance(used, dict)
        if used["of"]:
            lines.append(f"  of the policies it uses: {used['decided']} of {used['of']}")
    return "\n".join(lines)


def _mutated(mutation: Mutation) -> list[str]:
    """What no test notices, by place, and the counts."""
    lines = [f"mutation: {mutation.noticed} of {mutation.of} changes are noticed by a test"]
    lines += [f"  {mutant.place}: no test notices {mutant.change}" for mutant in mutation.survivors]
    apart = [f"{mutation.quotas} of quotas, which no test block can see"] if mutation.quotas else []
    if mutation.refused or mutation.same or apart:
        apart = [f"{mutation.refused} that check refuses", f"{mutation.same} that decide nothing otherwise", *apart]
        lines.append(f"  not counted: {', '.join(apart)}")
    return lines


def _failed(outcome: Outcome) -> list[str]:
    lines = [f"{outcome.file}:{outcome.line}: {outcome.name}: failed"]
    if outcome.error is not None:
        lines.append(f"  {outcome.error.place}: {outcome.error.message}")
    elif not outcome.rows:
        lines.append("  this test expects nothing")
    for row in outcome.rows:
        if row.error is not None:
            lines.append(f"  line {row.line}: {row.error}")
        elif not row.passed:
            wanted = f"{row.expected}" + (f" by {row.expected_rule}" if row.expected_rule else "")
            got = f"{row.got}" + (f" by {row.rule}" if row.rule else "")
            lines.append(f"  line {row.line}: {row.span} {row.property}: expected {wanted}, got {got}")
            lines += [f"    {note}" for note in row.notes]
    return lines
