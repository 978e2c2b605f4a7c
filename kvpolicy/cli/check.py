"""`kvp check FILE…`: parse policies, check words, types and rules, and list every fault.

Reads files and packaged policies (`language.load`, `policy.checked`); writes text, the JSON of the interface, or SARIF.
All files of one call are one set: a name defined in two of them is a fault.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from kvpolicy.cli.colour import paint_for
from kvpolicy.cli.listing import as_document, as_text, as_words, summary
from kvpolicy.faults import ERROR, Diagnostic

if TYPE_CHECKING:
    from kvpolicy.policy.checked import Checked

HELP = "Parse policies and check their words, types and rules. All files of one call are one set."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`FILE… [--engine E] [--format text|json|sarif]`."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="a .kvp file, or the name of a packaged policy")
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
    from kvpolicy.language.load import load
    from kvpolicy.policy.checked import examined

    checked = examined(load(args.files))
    diagnostics, texts = checked.diagnostics, checked.texts()
    if args.engine is not None:
        diagnostics = (*diagnostics, *_of_engine(checked, args.engine))
    # A packaged policy stands in messages under its file's name.
    names = [f"{name}.kvp" if name not in texts and f"{name}.kvp" in texts else name for name in args.files]
    if args.format == "sarif":
        from kvpolicy import __version__
        from kvpolicy.language.sarif import as_sarif

        print(json.dumps(as_sarif(diagnostics, __version__), indent=1))
    elif args.format == "json":
        print(json.dumps(as_document(names, diagnostics), indent=1))
    else:
        if diagnostics:
            print(as_text(diagnostics, texts, paint_for(sys.stdout)))
        print(f"{as_words(', '.join(names))}: {summary(diagnostics)}")
    return int(any(d.severity == ERROR for d in diagnostics))
