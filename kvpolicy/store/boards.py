"""Versions in-process: what is in force under each name, and the latest ones before it.

The whole of a version is put in force or nothing is. Used by `memory`, and by `redis` as what was last heard.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kvpolicy.faults import InputFault
from kvpolicy.store.contract import Published, Version

KEPT = 16  # versions of one name
LARGEST_B = 1 << 20


@dataclass(slots=True)
class Board:
    """Versions of one name, by number."""

    versions: dict[int, Version] = field(default_factory=dict)
    current: Version | None = None
    prior: int = 0  # the number in force before
    next: int = 1


def checked(name: str, files: Mapping[str, str]) -> dict[str, str]:
    """The files as they are kept. Raises InputFault for what is no set of texts, or is too large."""
    if not isinstance(name, str) or not 0 < len(name) <= 200:
        raise InputFault("a version needs a name of at most 200 characters")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise InputFault(f"{name!r} is no name that could be stored as UTF-8") from None
    for file, text in files.items():
        if not isinstance(file, str) or not isinstance(text, str):
            raise InputFault(f"version {name}: files are texts by name, not {type(text).__name__}")
        try:
            size += len(file.encode()) + len(text.encode())
        except UnicodeEncodeError:
            raise InputFault(f"version {name}: {file!r} is no text that could be stored as UTF-8") from None
    if size > LARGEST_B:
        raise InputFault(f"version {name}: {size} bytes; at most {LARGEST_B} are taken")
    return dict(files)


class Boards:
    """All names."""

    def __init__(self) -> None:
        self._boards: dict[str, Board] = {}

    def names(self) -> tuple[str, ...]:
        """Names of which something is or was in force."""
        return tuple(self._boards)

    def current(self, name: str) -> Version | None:
        """What is in force."""
        board = self._boards.get(name)
        return None if board is None else board.current

    def history(self, name: str) -> list[Version]:
        """What is in force, and the version before it where it is kept."""
        board = self._boards.get(name)
        if board is None or board.current is None:
            return []
        before = board.versions.get(board.prior)
        return [board.current] if before is None else [board.current, before]

    def publish(self, name: str, files: Mapping[str, str], expect: int | None, now: float) -> Published:
        """A new version comes into force, unless another than `expect` is."""
        board = self._boards.get(name) or Board()
        serial = 0 if board.current is None else board.current.serial
        if expect is not None and expect != serial:
            return Published(False, board.current, False, f"serial {serial} is in force, not {expect}")
        version = Version(name, serial + 1, board.next, dict(files), now)
        self._boards[name] = board
        board.next += 1
        self._enter(board, version)
        return Published(True, version, False)

    def roll_back(self, name: str, to: int | None) -> Published:
        """An earlier version comes into force again."""
        board = self._boards.get(name)
        if board is None or board.current is None:
            return Published(False, None, False, f"no version of {name} was ever in force")
        number = board.prior if to is None else to
        earlier = board.versions.get(number)
        if earlier is None:
            return Published(False, board.current, False, f"version {number} of {name} is not kept")
        version = replace(earlier, serial=board.current.serial + 1)
        self._enter(board, version)
        return Published(True, version, False)

    def heard(self, version: Version, before: Version | None) -> None:
        """This is in force, as others decided; `before` was, until then."""
        board = self._boards.setdefault(version.name, Board())
        board.next = max(board.next, version.number + 1)
        if board.current != version:
            self._enter(board, version)
        if before is not None and before.number != version.number:
            board.versions[before.number], board.prior = before, before.number

    def _enter(self, board: Board, version: Version) -> None:
        if board.current is not None:
            board.prior = board.current.number
        board.current = version
        board.versions[version.number] = version
        for number in sorted(board.versions):
            if number <= board.next - 1 - KEPT and number not in (version.number, board.prior):
                del board.versions[number]

    def export(self) -> dict[str, Any]:
        """All of it as JSON."""
        return {
            name: {
                "prior": board.prior,
                "next": board.next,
                "current": None if board.current is None else [board.current.serial, board.current.number],
                "versions": [[v.serial, v.number, dict(v.files), v.at] for v in board.versions.values()],
            }
            for name, board in self._boards.items()
        }

    def load(self, document: Mapping[str, Any]) -> None:
        """Take what `export` gave. Raises InputFault, changing nothing, for anything else."""
        boards = {}
        try:
            for name, row in document.items():
                board = Board(prior=int(row["prior"]), next=int(row["next"]))
                for serial, number, files, at in row["versions"]:
                    if not math.isfinite(at):
                        raise ValueError("a time")
                    version = Version(name, int(serial), int(number), checked(name, files), float(at))
                    board.versions[version.number] = version
                if row["current"] is not None:
                    serial, number = row["current"]
                    board.current = replace(board.versions[int(number)], serial=int(serial))
                boards[name] = board
        except (KeyError, TypeError, ValueError, AttributeError) as fault:
            raise InputFault(f"versions that do not fit: {fault}") from None
        self._boards = boards
