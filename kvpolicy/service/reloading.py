"""Policies follow their files: a change is taken up once the set has been still for a while, or at once by signal.

Looks at every file that a policy in force was read from, through symbolic links (a mounted ConfigMap swaps one), and
hands what was read to `policies`, all sets or none. A file that is gone is a fault, not an empty policy: the last good
one stays in force until the set can be read again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from kvpolicy.faults import InputFault, PolicyFault
from kvpolicy.language.load import load, packaged_text
from kvpolicy.policy.checked import examined
from kvpolicy.policy.policy import Policy
from kvpolicy.service.policies import Policies, Version

STILL_S = 1.5  # without another change in the set
LOOK_S = 0.25

Signature = tuple[object, ...]
log = logging.getLogger("kvpolicy.service")


class Reloading:
    """clock: seconds, only differences count."""

    def __init__(self, policies: Policies, clock: Callable[[], float]) -> None:
        self._policies, self._clock = policies, clock
        self._targets = tuple(name for name in policies.names if not _is_packaged(name))
        self._files: dict[str, tuple[Path, ...]] = {}
        for name in self._targets:
            texts = policies.current(name).texts()
            self._files[name] = tuple(Path(file) for file in texts if Path(file).is_file())
        self._taken = self._seen = self.signature()
        self._changed_at: float | None = None
        self._turn = asyncio.Lock()

    def signature(self) -> Signature:
        """What tells whether any file of any set is another one than before."""
        paths = sorted({path for files in self._files.values() for path in files} | set(map(Path, self._targets)))
        rows: list[object] = [_of_file(path) for path in paths]
        if self._policies.fault is not None:  # a file that was missing may have come
            rows += [_of_file(folder) for folder in sorted({path.parent for path in paths})]
        return tuple(rows)

    def due(self, now: float) -> bool:
        """Whether the files changed and have been still since then for `STILL_S`. Looks at them."""
        seen = self.signature()
        if seen != self._seen:
            self._seen, self._changed_at = seen, now
        if self._changed_at is None or now - self._changed_at < STILL_S:
            return False
        self._changed_at = None
        return seen != self._taken

    def read(self) -> dict[str, Policy]:
        """Every set that has files, compiled aside. Raises PolicyFault or InputFault for the first that is wrong."""
        made: dict[str, Policy] = {}
        for name in self._targets:
            checked = examined(load([name]))
            self._files[name] = tuple(Path(file) for file in checked.texts() if Path(file).is_file())
            made[name] = checked.policy()
        return made

    async def reload(self, source: str) -> list[Version]:
        """Read everything and bring it into force, or nothing of it. Raises PolicyFault or InputFault."""
        async with self._turn:
            try:
                made = await asyncio.to_thread(self.read)
            except (PolicyFault, InputFault, OSError) as fault:
                self._policies.failed(str(fault))
                self._taken = self._seen = self.signature()
                log.warning("policies: what is on disk is not taken up: %s", fault)
                raise
            changed = self._policies.take(made, source)
            self._taken = self._seen = self.signature()
            for version in changed:
                log.info("policies: %s is in version %d, by %s", version.name, version.number, source)
            return changed

    async def run(self) -> None:
        """Look again and again."""
        while self._targets:
            await asyncio.sleep(LOOK_S)
            try:
                if await asyncio.to_thread(self.due, self._clock()):
                    await self.reload("file")
            except (PolicyFault, InputFault, OSError):
                continue  # said and counted

    async def signalled(self) -> None:
        """A signal asked for it."""
        try:
            await self.reload("signal")
        except (PolicyFault, InputFault, OSError):
            return  # said and counted


def _is_packaged(name: str) -> bool:
    return "/" not in name and not name.endswith(".kvp") and not Path(name).exists() and packaged_text(name) is not None


def _of_file(path: Path) -> object:
    try:
        found = path.stat()
        return str(path), str(path.resolve()), found.st_mtime_ns, found.st_size, found.st_ino
    except (OSError, RuntimeError):
        return str(path), None
