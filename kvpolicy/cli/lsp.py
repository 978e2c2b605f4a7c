"""`kvp lsp`: the language server, for editors.

The editor starts it and talks to it over the standard streams; see docs/editors.md.
"""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec

from kvpolicy.faults import InputFault, install

HELP = (
    "The language server for .kvp files: an editor starts it and speaks to it over its standard streams. "
    "docs/editors.md says how for several editors."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`[--stdio]`, which many editors add."""
    parser.add_argument("--stdio", action="store_true", help="speak over the standard streams, as it does anyway")
    parser.add_argument("--clientProcessId", metavar="N", help=argparse.SUPPRESS)  # some clients add it


def run(args: argparse.Namespace) -> int:
    """Serve until the editor ends the session. Raises InputFault where pygls is not installed."""
    if find_spec("pygls") is None:
        raise InputFault(f"lsp: needs pygls, which is not installed: {install('lsp')}")
    if sys.stdin.isatty():
        raise InputFault("lsp: an editor starts this and speaks to it; docs/editors.md says how to set one up")
    from kvpolicy.lsp.server import serve

    return serve()
