"""Colours of messages: on a terminal, and only where nobody has asked for none.

`listing` marks what it writes; a stream that is no terminal gets plain text. NO_COLOR (https://no-color.org) counts.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TextIO

Paint = Callable[[str, str], str]  # (what it is, text) -> text

_CODES = {"error": "1;31", "warning": "1;33", "notice": "1;36", "place": "1", "line": "2", "instead": "32"}


def plain(what: str, text: str) -> str:
    """No colour."""
    return text


def _coloured(what: str, text: str) -> str:
    return f"\033[{_CODES[what]}m{text}\033[0m" if what in _CODES and text else text


def paint_for(stream: TextIO) -> Paint:
    """How to write on a stream."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not stream.isatty():
        return plain
    return _coloured
