"""The parser, built once a process from `grammar/kvp.lark`, its tables kept in the user's cache directory.

Reads the grammar as package data; `parse` is its only caller. Where the cache cannot be trusted or written, the
tables are built anew (about a tenth of a second), without a word.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import sys
from functools import cache
from importlib import resources
from pathlib import Path

from lark import Lark
from lark import __version__ as lark_version

from kvpolicy.language.build import Builder


@cache
def grammar_text() -> str:
    """The text of `kvp.lark`."""
    return resources.files("kvpolicy.grammar").joinpath("kvp.lark").read_text(encoding="utf-8")


@cache
def terminal(name: str) -> re.Pattern[str]:
    """The regular expression that the grammar writes for a terminal."""
    for line in grammar_text().splitlines():
        head, _, written = line.partition(": /")
        if head.partition(".")[0] == name and written.endswith("/"):
            return re.compile(written[:-1])
    raise KeyError(name)


@cache
def parser() -> tuple[Lark, Builder]:
    """The LALR parser and the transformer that it calls while it reduces. Not to be used by two threads at once."""
    builder = Builder()
    path = cache_file()
    lark = Lark(
        grammar_text(),
        parser="lalr",
        lexer="contextual",
        transformer=builder,
        maybe_placeholders=True,
        cache=str(path) if path else False,
    )
    return lark, builder


def cache_file(kind: str = "tables") -> Path | None:
    """Where the tables are kept, or None where no place is safe: lark unpickles what it finds there, so the folder and
    the file must be ours alone."""
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        folder = (Path(base) if base else Path.home() / ".cache") / "kvpolicy"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        digest = hashlib.sha256(grammar_text().encode()).hexdigest()[:16]
        python = f"{sys.version_info.major}{sys.version_info.minor}"
        file = folder / f"kvp-{digest}-lark{lark_version}-py{python}.{kind}"
        if not _ours(folder, stat.S_ISDIR) or (file.is_symlink() or file.exists()) and not _ours(file, stat.S_ISREG):
            return None
        if not os.access(folder, os.W_OK):
            return None
    except (OSError, RuntimeError, ValueError):
        return None
    return file


def _ours(path: Path, is_kind: object) -> bool:
    """Owned by this user, of the kind asked for (no link), and writable by nobody else."""
    found = path.lstat()
    assert callable(is_kind)
    owned = not hasattr(os, "geteuid") or found.st_uid == os.geteuid()
    return bool(is_kind(found.st_mode)) and owned and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
