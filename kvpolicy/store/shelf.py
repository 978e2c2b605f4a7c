"""Documents in files, each with a checksum: a crash in the middle of a write leaves what stood there before.

A file is one line of head (`kvpolicy 1 SHA-256 LENGTH`) and the document's JSON. It is written beside its place, then
moved there in one step; the one before is kept as `NAME.before` and read where the newer one is torn.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from kvpolicy.faults import InputFault

_HEAD = b"kvpolicy 1 "


class Shelf:
    """One folder of documents. Only its owner may read it: keys of salts are among them."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Raises InputFault where the folder cannot be made or written."""
        self.folder = Path(folder)
        self.torn = 0  # files that were not whole when read
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            for left in self.folder.glob("*.new-*"):  # of a write that a crash ended
                left.unlink(missing_ok=True)
        except OSError as fault:
            raise InputFault(f"{self.folder}: no folder for a store's files: {fault.strerror}") from None
        if not os.access(self.folder, os.W_OK | os.X_OK):
            raise InputFault(f"{self.folder}: a store's folder has to be writable")

    def write(self, name: str, document: Mapping[str, Any], sync: bool = True) -> bool:
        """Put a document in place of the one under this name. False: it could not be written; the former stands.
        `sync`: not before the disk has it."""
        import orjson

        body = orjson.dumps(document, option=orjson.OPT_NON_STR_KEYS)
        data = _HEAD + f"{sha256(body).hexdigest()} {len(body)}\n".encode() + body
        place, new = self.folder / name, self.folder / f"{name}.new-{os.getpid()}"
        try:
            with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(data)
                if sync:
                    file.flush()
                    os.fsync(file.fileno())
            before = self.folder / f"{name}.before"
            with contextlib.suppress(FileNotFoundError):
                # A link, then a rename over it: at no instant is neither of the two names there.
                link = self.folder / f"{name}.new-before-{os.getpid()}"
                link.unlink(missing_ok=True)
                os.link(place, link)
                os.replace(link, before)
            os.replace(new, place)
            if sync:
                self._sync_folder()
        except OSError:
            return False
        return True

    def read(self, name: str) -> dict[str, Any] | None:
        """The document under this name; where it is torn, the one before it; None: neither is whole."""
        place, before = self.folder / name, self.folder / f"{name}.before"
        for file in (place, before):
            try:
                data = file.read_bytes()
            except OSError:
                continue
            document = _whole(data)
            if document is None:
                self.torn += 1
                continue
            if file == before:
                # Else the next write would move the torn file over the only whole one.
                with contextlib.suppress(OSError):
                    os.replace(before, place)
            return document
        return None

    def names(self) -> list[str]:
        """Names of which a document is kept."""
        try:
            found = {entry.name.removesuffix(".before") for entry in self.folder.iterdir() if ".new-" not in entry.name}
        except OSError:
            return []
        return sorted(found)

    def _sync_folder(self) -> None:
        handle = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _whole(data: bytes) -> dict[str, Any] | None:
    import orjson

    head, found, body = data.partition(b"\n")
    if not found or head != _HEAD + f"{sha256(body).hexdigest()} {len(body)}".encode():
        return None
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    return document if isinstance(document, dict) else None
