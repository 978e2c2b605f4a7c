"""`kvp fmt [--check | --diff] FILE…`: policies in the canonical layout.

Reads files, or the standard input (`-`), and writes them back. All or nothing: where one text has a fault of syntax,
none is written, and every write replaces its file whole.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from kvpolicy.faults import Diagnostic, InputFault, PolicyFault

HELP = (
    "Lay out policies in the one canonical way: what they say and their comments stay. Nothing is written where one of "
    "the files is no policy by its shape. Status 1: such a file, or --check or --diff found one to lay out."
)
STDIN, _STDIN_NAME = "-", "<stdin>"


@dataclass(frozen=True, slots=True)
class _Work:
    """One text: `name` as it was given, its bytes, what they say and what they are to be."""

    name: str
    data: bytes
    before: str
    after: str

    @property
    def differs(self) -> bool:
        return self.after.encode() != self.data


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`[--check] [--diff] FILE…`."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="a .kvp file; - for the standard input")
    parser.add_argument("--check", action="store_true", help="write nothing; say which files are laid out otherwise")
    parser.add_argument("--diff", action="store_true", help="write nothing; show what would change")


def run(args: argparse.Namespace) -> int:
    """Lay out; 1 where --check or --diff found something. Raises PolicyFault for faults of syntax, InputFault or
    OSError for what cannot be read or written."""
    work, faults = _laid_out(dict.fromkeys(args.files))
    if faults:
        raise PolicyFault(tuple(faults))
    changed = [one for one in work if one.differs]
    if args.check or args.diff:
        if args.diff:
            sys.stdout.write("".join(_diff(one) for one in changed))
        for one in changed:
            ends = " (its line ends, or the mark in front)" if one.before == one.after else ""
            print(f"{one.name}: would be laid out anew{ends}", file=sys.stderr if args.diff else sys.stdout)
        return int(bool(changed))
    _replace({one.name: one for one in changed if one.name != _STDIN_NAME})
    for one in work:
        if one.name == _STDIN_NAME:
            sys.stdout.write(one.after)
        elif one.differs:
            print(f"{one.name}: laid out anew")
    return 0


def _laid_out(targets: dict[str, None]) -> tuple[list[_Work], list[Diagnostic]]:
    from kvpolicy.language.format import format_text

    work: list[_Work] = []
    faults: list[Diagnostic] = []
    for target in targets:
        name = _STDIN_NAME if target == STDIN else target
        data = _bytes_of(target)
        try:
            text = data.decode("utf-8-sig").replace("\r\n", "\n")
        except UnicodeDecodeError as fault:
            raise InputFault(f"{name}: not UTF-8 text: byte {fault.start} cannot be read; save it as UTF-8") from None
        laid_out = format_text(text, name)
        if laid_out.text is None:
            faults += laid_out.diagnostics
        else:
            work.append(_Work(name, data, text, laid_out.text))
    return work, faults


def _bytes_of(target: str) -> bytes:
    from kvpolicy.language.load import packaged_text
    from kvpolicy.language.parse import LARGEST_TEXT

    if target == STDIN:
        return sys.stdin.buffer.read(LARGEST_TEXT + 1)
    if not os.path.exists(target) and packaged_text(target) is not None:
        raise InputFault(f"{target}: this is a packaged policy; name a file")
    if os.path.exists(target) and not os.path.isfile(target):
        raise InputFault(f"{target}: this is no file")
    with open(target, "rb") as stream:
        return stream.read(LARGEST_TEXT + 1)


def _diff(one: _Work) -> str:
    """As `diff -u` has it; nothing of a file that differs in its line ends alone."""
    from difflib import unified_diff

    before, after = one.before.splitlines(keepends=True), one.after.splitlines(keepends=True)
    lines = list(unified_diff(before, after, one.name, f"{one.name} (laid out)"))
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _replace(work: dict[str, _Work]) -> None:
    """Write all, or none: every text stands beside its file before the first one takes its place, and one that cannot
    takes back those before it."""
    staged: list[tuple[Path, Path]] = []
    done: list[tuple[Path, bytes]] = []
    try:
        for name, one in work.items():
            path = Path(name).resolve()
            staged.append((_staged(path, one.after.encode()), path))
        for (beside, path), one in zip(staged, work.values(), strict=True):
            os.replace(beside, path)
            done.append((path, one.data))
    except OSError:
        for path, data in done:
            os.replace(_staged(path, data), path)
        raise
    finally:
        for beside, _ in staged:
            beside.unlink(missing_ok=True)


def _staged(path: Path, data: bytes) -> Path:
    """The bytes in a file of its own in the same folder, with the rights of the one it will replace."""
    import tempfile

    if not os.access(path, os.W_OK):
        raise PermissionError(13, "permission denied", str(path))
    number, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(number, "wb") as stream:
            stream.write(data)
            os.fchmod(stream.fileno(), path.stat().st_mode & 0o7777)
    except OSError:
        os.unlink(name)
        raise
    return Path(name)
