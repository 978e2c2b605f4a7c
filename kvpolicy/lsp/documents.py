"""The texts that an editor has open: immutable, one object a version, so that what reads one is never surprised.

`server` changes them as the editor says; everything else reads them. Positions are worked out by `lines`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

from lsprotocol import types

from kvpolicy.language.reading import identity_of
from kvpolicy.lsp.lines import UTF16, Lines

Change = types.TextDocumentContentChangeEvent


@dataclass(frozen=True, slots=True)
class Document:
    """One version of one open text. `path`: the file it stands for, or would be saved as beside the others."""

    uri: str
    path: Path
    version: int
    lines: Lines

    @property
    def text(self) -> str:
        """The text as the editor holds it."""
        return self.lines.text

    @property
    def identity(self) -> str:
        """By what the loader knows its file."""
        return identity_of(self.path)


@dataclass(slots=True)
class Documents:
    """All open texts, by URI. `folder`: where a text that was never saved would lie."""

    folder: Path = field(default_factory=Path.cwd)
    encoding: str = UTF16
    open: dict[str, Document] = field(default_factory=dict)

    def put(self, uri: str, version: int, text: str) -> Document:
        """A text was opened."""
        document = Document(uri, path_of(uri) or self.folder / _last(uri), version, Lines(text, self.encoding))
        self.open[uri] = document
        return document

    def change(self, uri: str, version: int, changes: Sequence[Change]) -> Document | None:
        """A text was changed, piece by piece; None where it is not open."""
        document = self.open.get(uri)
        if document is None:
            return None
        lines = document.lines
        for change in changes:
            if isinstance(change, types.TextDocumentContentChangePartial):
                start, end = lines.offset(change.range.start), lines.offset(change.range.end)
                text = lines.text[:start] + change.text + lines.text[max(start, end) :]
            else:
                text = change.text
            lines = Lines(text, self.encoding)
        self.open[uri] = replace(document, version=version, lines=lines)
        return self.open[uri]

    def close(self, uri: str) -> None:
        """A text was closed: from now on its file counts."""
        self.open.pop(uri, None)

    def by_identity(self, identity: str) -> Document | None:
        """The open text of a file."""
        # A copy first, here and below: other threads open and close texts while one is looked for.
        return next((one for one in list(self.open.values()) if one.identity == identity), None)

    def texts(self) -> dict[str, str]:
        """What counts instead of the files: the texts by identity, as the loader reads them. A `\\r` alone and letters
        that no file can hold stay: they are told as faults."""
        return {one.identity: normal(one.text) for one in list(self.open.values())}


def normal(text: str) -> str:
    """A text as `load` reads it from a file: no byte order mark, lines end with `\\n`."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n")


def path_of(uri: str) -> Path | None:
    """The path of a `file:` URI; None for any other."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return None
    if parts.scheme != "file" or "\0" in unquote(parts.path):
        return None
    return Path(url2pathname(parts.path))


def _last(uri: str) -> str:
    """A file name for a text that has none."""
    name = unquote(uri.rstrip("/").rpartition("/")[2].rpartition(":")[2]).replace("\0", "").replace("/", "_")[:100]
    name = name or "untitled"
    return name if name.endswith(".kvp") else f"{name}.kvp"
