"""The sets of files that open texts belong to: loaded as they are in the editor, remembered by what they say.

A `View` is one file with all that it uses, the way `kvp check FILE` sees it; a file `NAME.test.kvp` is seen with the
policy beside it, as `kvp test` does. Parsing and checking are done once for one text.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from importlib import resources
from pathlib import Path
from threading import Lock
from typing import TypeVar

from kvpolicy.faults import Diagnostic, PolicyFault
from kvpolicy.language.load import LoadResult, load_edited
from kvpolicy.language.parse import LARGEST_TEXT, ParseResult, parse
from kvpolicy.language.reading import identity_of
from kvpolicy.language.scope import Scope, scope_of
from kvpolicy.language.syntax import File
from kvpolicy.lsp.documents import Documents
from kvpolicy.lsp.lines import Lines
from kvpolicy.lsp.reader import Reading, read
from kvpolicy.policy.checked import Checked, examined
from kvpolicy.policy.policy import Policy

SUFFIX, TEST_SUFFIX = ".kvp", ".test.kvp"
MOST_FILES = 2000  # of a folder that are looked through
_KEPT = 64  # texts, and sets of texts, whose results are remembered
_SKIPPED = frozenset({"node_modules", "__pycache__", "build", "dist", "venv"})
T = TypeVar("T")


class Remembered:
    """The last results, by what they were made of."""

    def __init__(self, most: int = _KEPT) -> None:
        self._most = most
        self._rows: dict[Hashable, object] = {}
        self._lock = Lock()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The result for a key, made where it is not there."""
        with self._lock:
            if key in self._rows:
                self._rows[key] = found = self._rows.pop(key)
                return found  # type: ignore[return-value]
        made = make()
        with self._lock:
            self._rows[key] = made
            while len(self._rows) > self._most:
                del self._rows[next(iter(self._rows))]
        return made


@dataclass(frozen=True)
class Part:
    """One file of a set. `path`: where it lies; `packaged`: whether it comes with kvpolicy."""

    file: File
    group: str
    path: Path
    packaged: bool
    encoding: str
    read: Callable[[str], Reading]

    @cached_property
    def reading(self) -> Reading:
        """Its words."""
        return self.read(self.file.text)

    @cached_property
    def lines(self) -> Lines:
        """Its lines."""
        return Lines(self.file.text, self.encoding)


@dataclass(frozen=True)
class View:
    """One file with all that it uses. `own`: the name of that file in places."""

    own: str
    loaded: LoadResult
    parts: tuple[Part, ...]
    check: Callable[[], Checked]
    compiled: Callable[[], Policy | None]

    @cached_property
    def scope(self) -> Scope:
        """The names of the set."""
        return scope_of(self.loaded.partial, self.loaded.skipped)

    @property
    def checked(self) -> Checked:
        """Every fault; slow for many rules."""
        return self.check()

    @property
    def policy(self) -> Policy | None:
        """The compiled policy; None where the set has errors."""
        return self.compiled()

    def part(self, name: str) -> Part | None:
        """The file of that name in places."""
        return next((part for part in self.parts if part.file.name == name), None)

    @property
    def main(self) -> Part | None:
        """The file itself; None where it could not be read at all."""
        return self.part(self.own)

    def own_faults(self) -> tuple[Diagnostic, ...]:
        """The faults that stand in the file itself."""
        return tuple(fault for fault in self.checked.diagnostics if fault.place.file == self.own)


@dataclass(slots=True)
class Project:
    """Open texts and the folders around them. `roots`: the folders that the editor works in."""

    documents: Documents = field(default_factory=Documents)
    roots: tuple[Path, ...] = ()
    _parsed: Remembered = field(default_factory=Remembered)
    _readings: Remembered = field(default_factory=Remembered)
    _checked: Remembered = field(default_factory=lambda: Remembered(16))
    _compiled: Remembered = field(default_factory=lambda: Remembered(16))

    def view(self, path: Path, texts: dict[str, str] | None = None) -> View:
        """A file with what it uses. texts: what counts instead of the files; by default what is open.

        Raises InputFault where the file itself cannot be read.
        """
        edited = self.documents.texts() if texts is None else texts
        loaded = load_edited(self._together(path, edited), edited, self._parse)
        members = loaded.partial.members
        key = tuple((m.file.name, m.file.digest, m.group, loaded.origins.get(m.file.name)) for m in members)
        told = tuple((fault.place, fault.message) for fault in loaded.diagnostics)
        parts = tuple(self._part(m.file, m.group, loaded.origins.get(m.file.name)) for m in members)

        def check() -> Checked:
            return self._checked.get((key, told), lambda: examined(loaded))

        return View(path.name, loaded, parts, check, lambda: self._compiled.get((key, told), lambda: _policy(check())))

    def _parse(self, text: str, name: str) -> ParseResult:
        return self._parsed.get((text, name), lambda: parse(text, name))

    def _together(self, path: Path, texts: dict[str, str]) -> list[Path]:
        """The file, and the policy beside it where it is a file of tests."""
        if not path.name.endswith(TEST_SUFFIX):
            return [path]
        beside = path.with_name(path.name.removesuffix(TEST_SUFFIX) + SUFFIX)
        return [path, beside] if identity_of(beside) in texts or beside.is_file() else [path]

    def reading(self, text: str) -> Reading:
        """The words of a text."""
        return self._readings.get(text, lambda: read(text))

    def _part(self, file: File, group: str, origin: str | None) -> Part:
        path = Path(origin) if origin else _packaged_path(file.name)
        return Part(file, group, path, origin is None, self.documents.encoding, self.reading)

    def files(self, beside: Path) -> Iterator[Path]:
        """Every policy in the folders that the editor works in, or else in that of a file; open ones first."""
        seen: set[str] = set()
        for document in list(self.documents.open.values()):
            seen.add(document.identity)
            yield document.path
        for root in self.roots or (beside.parent,):
            for folder, folders, names in os.walk(root):
                folders[:] = sorted(f for f in folders if not f.startswith(".") and f not in _SKIPPED)
                for name in sorted(names):
                    path = Path(folder, name)
                    if name.endswith(SUFFIX) and (identity := identity_of(path)) not in seen:
                        seen.add(identity)
                        yield path
                        if len(seen) >= MOST_FILES:
                            return


def unread(path: Path) -> View:
    """The view of a file that cannot be read at all."""
    nothing = LoadResult(None, ())
    return View(path.name, nothing, (), lambda: Checked(nothing.partial, ()), lambda: None)


def text_of(path: Path) -> str | None:
    """The text of a file; None where it is none."""
    try:
        if path.stat().st_size > LARGEST_TEXT:
            return None
        return path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
    except (OSError, ValueError):
        return None


def _policy(checked: Checked) -> Policy | None:
    try:
        return checked.policy()
    except PolicyFault:
        return None


def _packaged_path(name: str) -> Path:
    return Path(str(resources.files("kvpolicy.policies").joinpath(name)))
