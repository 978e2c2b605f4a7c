"""Policies follow their files: a change is taken up once the set has been still for a while, or at once by signal.

Looks at every file that a policy in force was read from, through symbolic links (a mounted ConfigMap swaps one), and
hands what was read to `policies`, all sets or none. A file that is gone is a fault, not an empty policy: the last good
one stays in force until the set can be read again. A file that is written while the set is read counts as changed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from kvpolicy.faults import InputFault, PolicyFault
from kvpolicy.language.load import load, packaged_text
from kvpolicy.policy.checked import examined
from kvpolicy.policy.policy import Policy
from kvpolicy.service.policies import Policies, Version
from kvpolicy.service.stillness import LOOK_S, Stillness

log = logging.getLogger("kvpolicy.service")


class Reloading:
    """clock: seconds, only differences count."""

    def __init__(self, policies: Policies, clock: Callable[[], float]) -> None:
        self._policies, self._clock = policies, clock
        self._targets: tuple[str, ...] = ()
        self._files: dict[str, tuple[Path, ...]] = {}
        self._still = Stillness(self._paths, lambda: policies.fault is not None, clock)
        self._turn = asyncio.Lock()
        self.follow()

    def follow(self) -> None:
        """The policies that are wanted now are looked at from now on, and no others."""
        targets = tuple(name for name in self._policies.wanted if not is_packaged(name))
        if targets == self._targets:
            return
        texts: dict[str, str] = {}
        files: dict[str, tuple[Path, ...]] = {}
        for name in targets:
            read = {str(Path(file)): text for file, text in self._policies.current(name).texts().items()}
            texts |= read
            files[name] = self._files[name] if name in self._files else _on_disk(read)
        self._targets, self._files = targets, files  # a thread may be looking at those before
        found = self._still.look()  # before the texts, so that nothing slips between the two
        known = (path for path in found if not Path(path).is_file() or _text(path) == texts.get(path))
        self._still.widen({path: found[path] for path in known})

    def _paths(self) -> set[Path]:
        """Every file of every set."""
        return {path for files in self._files.values() for path in files} | set(map(Path, self._targets))

    def due(self, now: float) -> bool:
        """Whether the files changed and have been still since then for `STILL_S`. Looks at them."""
        return self._still.due(now)

    def read(self) -> dict[str, Policy]:
        """Every set that has files, compiled aside. Raises PolicyFault or InputFault for the first that is wrong."""
        made: dict[str, Policy] = {}
        for name in self._targets:
            checked = examined(load([name]))
            self._files[name] = _on_disk(checked.texts())
            made[name] = checked.policy()
        return made

    async def reload(self, source: str) -> list[Version]:
        """Read everything and bring it into force, or nothing of it. Raises PolicyFault or InputFault."""
        async with self._turn:
            before = self._still.look(folders=True)
            fault_before = self._policies.fault
            try:
                changed = self._policies.take(await asyncio.to_thread(self.read), source)
            except (PolicyFault, InputFault, OSError) as fault:
                self._policies.failed(str(fault))
                self._still.settle(before)
                log.warning("policies: what is on disk is not taken up: %s", fault)
                raise
            except Exception as fault:
                said = f"{type(fault).__name__}: {fault}"
                self._policies.failed(said)
                self._still.settle({})  # no fault of the files, so it is tried again though none of them changes
                if said != fault_before:
                    log.warning("policies: what is on disk is not taken up: %s", said)
                raise InputFault(said) from fault
            if fault_before is not None:
                now = ", ".join(f"{v.name} in version {v.number}" for v in changed) or "nothing of it is new"
                log.warning("policies: what is on disk is taken up again: %s", now)
            self._still.settle(before)
            for version in changed:
                log.info("policies: %s is in version %d, by %s", version.name, version.number, source)
            return changed

    async def run(self) -> None:
        """Look again and again."""
        while True:
            await asyncio.sleep(LOOK_S)
            with suppress(Exception):  # a fault of the files is said and counted
                if await asyncio.to_thread(self.due, self._clock()):
                    await self.reload("file")

    async def signalled(self) -> None:
        """A signal asked for it."""
        try:
            await self.reload("signal")
        except (PolicyFault, InputFault, OSError):
            return  # said and counted


def is_packaged(name: str) -> bool:
    """Whether a policy of this name is the package's own, and no file that may change."""
    return "/" not in name and not name.endswith(".kvp") and not Path(name).exists() and packaged_text(name) is not None


def _on_disk(names: Iterable[str]) -> tuple[Path, ...]:
    """Those that are files of their own; a packaged policy's is not."""
    return tuple(path for path in map(Path, names) if path.is_file())


def _text(path: str) -> str | None:
    """A file's text as policies are read."""
    try:
        return Path(path).read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
    except (OSError, UnicodeDecodeError):
        return None
