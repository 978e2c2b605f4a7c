"""`kvp check FILE…`: parse policies, check words, types and rules, and list every fault.

Reads files and packaged policies (`language.load`, `policy.checked`); writes text, the JSON of the interface, or SARIF.
All files of one call are one set, where a name defined in two of them is a fault, or each is one of its own (`--each`).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kvpolicy.cli.colour import paint_for
from kvpolicy.cli.listing import as_document, as_text, as_words, summary
from kvpolicy.faults import ERROR, Diagnostic

if TYPE_CHECKING:
    from kvpolicy.policy.checked import Checked

HELP = (
    "Parse policies and check their words, types and rules. All files of one call are one set, as the files of one "
    "policy are; with --each every file is a policy of its own."
)
_SUFFIX, _TEST_SUFFIX = ".kvp", ".test.kvp"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`FILE… [--each] [--engine E] [--format text|json|sarif]`."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="a .kvp file, or the name of a packaged policy")
    parser.add_argument(
        "--each",
        action="store_true",
        help="check each file by itself, NAME.test.kvp with the NAME.kvp beside it, as for all policies of a folder",
    )
    parser.add_argument(
        "--engine", metavar="E", help="also tell what this engine cannot honour: a name, or a JSON file"
    )
    parser.add_argument("--format", choices=("text", "json", "sarif"), default="text", help="default: text")


def _of_engine(checked: Checked, name: str) -> tuple[Diagnostic, ...]:
    """What the engine cannot honour; of a policy with errors nothing, since it reaches none."""
    from kvpolicy.engine_check import check_engine, find_engine

    engine = find_engine(name)
    if any(d.severity == ERROR for d in checked.diagnostics):
        return ()
    return check_engine(checked.policy(), engine)


def run(args: argparse.Namespace) -> int:
    """List the faults; 1 where one of them is an error. Raises InputFault for what cannot be read at all."""
    sets = [_one(target) for target in dict.fromkeys(args.files)] if args.each else [args.files]
    told: list[Diagnostic] = []
    texts: dict[str, str] = {}
    lines = []
    for files in sets:
        found, more = _faults(files, args.engine)
        texts |= more
        # What several files use is at fault once.
        told += [fault for fault in found if fault not in told]
        lines.append(f"{as_words(', '.join(_named(files[:1] if args.each else files, more)))}: {summary(found)}")
    diagnostics = tuple(told)
    if args.format == "sarif":
        from kvpolicy import __version__
        from kvpolicy.language.sarif import as_sarif

        print(json.dumps(as_sarif(diagnostics, __version__), indent=1))
    elif args.format == "json":
        print(json.dumps(as_document(_named(args.files, texts), diagnostics), indent=1))
    else:
        if diagnostics:
            print(as_text(diagnostics, texts, paint_for(sys.stdout)))
        print("\n".join(lines))
    return int(any(d.severity == ERROR for d in diagnostics))


def _one(target: str) -> list[str]:
    """A file alone; a test file with the policy beside it, whose rules it names."""
    policy = target.removesuffix(_TEST_SUFFIX) + _SUFFIX
    return [target, policy] if target.endswith(_TEST_SUFFIX) and Path(policy).is_file() else [target]


def _faults(files: list[str], engine: str | None) -> tuple[tuple[Diagnostic, ...], dict[str, str]]:
    """What is wrong with one set, and the texts of its files."""
    from kvpolicy.language.load import load
    from kvpolicy.loading import with_graphs
    from kvpolicy.policy.checked import examined

    checked = examined(load(files))
    more = () if engine is None else _of_engine(checked, engine)
    return (*with_graphs(checked), *more), checked.texts()


def _named(files: list[str], texts: Mapping[str, str]) -> list[str]:
    """Files as messages name them: a packaged policy stands in them under its file's name."""
    return [f"{name}.kvp" if name not in texts and f"{name}.kvp" in texts else name for name in files]
