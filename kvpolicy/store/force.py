"""What is in force, kept the same here and on the server: versions are watched by their serials.

Each round reads all serials (one small hash). A serial that is not the one last heard is looked up. Where the server
has less than is known here (it was restarted empty, evicted a key, or took over too early) it is told. Two versions of
one serial, made apart from each other: the server's counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from kvpolicy.faults import InputFault
from kvpolicy.store.boards import checked
from kvpolicy.store.contract import Published, Version
from kvpolicy.store.keys import BOARD_S, Keys
from kvpolicy.store.memory import MemoryStore
from kvpolicy.store.wire import Command

_TTL_MS = int(BOARD_S * 1000)


class Force:
    """The versions of all names, here and there."""

    def __init__(self, keys: Keys, local: MemoryStore) -> None:
        self._keys, self._local = keys, local
        self._heard: dict[str, int] = {}  # serials that the server is known to have
        self._ask: set[str] = set()
        self._lacking: set[str] = set()  # names of which the server has less than is known here

    def forget(self) -> None:
        """Another server may answer next: nothing is known of it."""
        self._heard.clear()

    @property
    def outstanding(self) -> bool:
        """Whether something has to be looked up or told before what is in force is known here and there."""
        return bool(self._ask or self._lacking)

    def look_again(self) -> None:
        """Look up everything in the next round: it renews the keys' time, and finds those that were evicted."""
        self._ask.update(version.name for version in self._local.policies())

    def decided(self, answer: Published) -> Published:
        """The server answered a change that this replica wished for."""
        if answer.version is not None:
            self.hear(answer.version)
        return answer

    def hear(self, version: Version, before: Version | None = None) -> None:
        """The server has this version in force; `before` was, until then."""
        mine = self._local.policy(version.name)
        if mine is not None and mine.serial > version.serial:
            return  # an answer that was overtaken
        if mine is not None and mine.serial == version.serial and mine.files != version.files:
            self._local.counters["conflicts"] += 1
        self._heard[version.name] = version.serial
        history = self._local.history(version.name)
        if mine != version or (before is not None and before.number not in [v.number for v in history]):
            self._local.heard(version, before)

    def commands(self) -> list[Command]:
        """What to ask in this round; `answered` takes the answers."""
        restores = [command for name in sorted(self._lacking) if (command := self._restore(name)) is not None]
        self._ask |= self._lacking
        self._lacking.clear()
        return [
            Command("HGETALL", (self._keys.hello()[0],)),
            *restores,
            *(Command("current", self._keys.board(name), (_TTL_MS, name)) for name in sorted(self._ask)),
        ]

    def answered(self, commands: Sequence[Command], answers: Sequence[Any]) -> None:
        """Take in what the server has, and find out what it lacks."""
        self._ask.clear()
        for command, answer in zip(commands, answers, strict=True):
            if command.name != "current":
                continue
            name = str(command.arguments[1])
            version, mine = version_of(name, answer), self._local.policy(name)
            if version is None or (mine is not None and mine.serial > version.serial):
                self._lacking.add(name)
            else:
                self.hear(version, version_of(name, answer[3:]))
        table = answers[0]
        pairs = table.items() if isinstance(table, dict) else zip(table[::2], table[1::2], strict=True)
        there = {bytes(name).decode(errors="replace"): int(serial) for name, serial in pairs if name != b"#layout"}
        self._lacking.update(version.name for version in self._local.policies() if version.name not in there)
        self._ask.update(name for name, serial in there.items() if self._heard.get(name) != serial)
        self._ask -= self._lacking

    def _restore(self, name: str) -> Command | None:
        versions = self._local.history(name)
        if not versions:
            return None
        rows: list[bytes | str | int] = []
        for version in versions:
            rows += [version.number, str(int(version.at * 1000)).encode() + b" " + body_of(version.files)]
        current, prior = versions[0], versions[1].number if len(versions) > 1 else 0
        head = (name, current.serial, current.number, prior, _TTL_MS)
        return Command("restore", self._keys.board(name), (*head, *rows))


def body_of(files: Any) -> bytes:
    """Files as they are stored."""
    return orjson.dumps(dict(files))


def version_of(name: str, answer: Sequence[Any]) -> Version | None:
    """The version that "current" or "roll_back" answer with; None: there is none, or none that could be read."""
    if not answer or not answer[2]:
        return None
    at, _, body = bytes(answer[2]).partition(b" ")
    try:
        return Version(name, int(answer[0]), int(answer[1]), checked(name, orjson.loads(body)), int(at) / 1000)
    except (ValueError, TypeError, AttributeError, InputFault):
        return None
