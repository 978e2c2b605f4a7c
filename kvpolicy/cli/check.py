"""`kvp check FILE…`: parse policies, check words, types and rules, and list every fault.

Reads files and packaged policies through `language.load`; writes text or the JSON of the interface to stdout.
All files of one call are one set: a name defined in two of them is a fault.
"""

from __future__ import annotations

import argparse
import json

from kvpolicy.cli.listing import as_document, as_text, summary
from kvpolicy.faults import ERROR, Diagnostic

HELP = "Parse policies and check their words, types and rules. All files of one call are one set."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`FILE… [--format text|json]`."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="a .kvp file, or the name of a packaged policy")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: text")


def run(args: argparse.Namespace) -> int:
    """List the faults; 1 where one of them is an error. Raises InputFault or OSError for what is no policy file."""
    diagnostics, texts = check(args.files)
    if args.format == "json":
        print(json.dumps(as_document(args.files, diagnostics), indent=1))
    else:
        if diagnostics:
            print(as_text(diagnostics, texts))
        print(f"{', '.join(args.files)}: {summary(diagnostics)}")
    return int(any(d.severity == ERROR for d in diagnostics))


def check(targets: list[str]) -> tuple[tuple[Diagnostic, ...], dict[str, str]]:
    """All diagnostics of a set of files, by place, and the texts they point into.

    A later pass runs only on what the earlier ones found no error in, so that one fault gives one message.
    """
    from kvpolicy.language.load import load

    loaded = load(targets)
    found = list(loaded.diagnostics)
    files = loaded.files
    if files is not None and not _wrong(found):
        from kvpolicy.language.check import check as check_words

        found += check_words(files)
        if not _wrong(found):
            from kvpolicy.policy.analysis import analyse

            found += analyse(files)
    texts = {member.file.name: member.file.text for member in files.members} if files is not None else {}
    for name in {d.place.file for d in found} - texts.keys():
        texts[name] = _read(name)
    return tuple(sorted(found, key=lambda d: (d.place, d.code))), texts


def _wrong(found: list[Diagnostic]) -> bool:
    return any(d.severity == ERROR for d in found)


def _read(name: str) -> str:
    """The text of a file that did not parse; nothing where it cannot be shown."""
    try:
        with open(name, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError):
        return ""
