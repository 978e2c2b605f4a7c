"""Files as bytes: how much of one is read, by what it is known, and why it could not be read.

Used by `load`, for files that are asked for and files that others use.
"""

from __future__ import annotations

from pathlib import Path

from kvpolicy.language.parse import LARGEST_TEXT


def bytes_of(path: Path) -> bytes:
    """At most one byte more than a policy may have, so that an endless file does no harm.

    Raises OSError where the file cannot be read, ValueError for a name that no file can have.
    """
    if path.is_dir():
        raise IsADirectoryError(21, "it is a folder")
    with path.open("rb") as stream:
        return stream.read(LARGEST_TEXT + 1)


def identity_of(path: Path) -> str:
    """One name for one file, whatever way leads to it: absolute, links followed."""
    try:
        return str(path.resolve())
    except (OSError, RuntimeError):
        return str(path.absolute())


def reason_of(error: Exception) -> str:
    """Why a file could not be read, in a few words."""
    if isinstance(error, FileNotFoundError):
        return "there is no such file"
    return getattr(error, "strerror", None) or str(error)
