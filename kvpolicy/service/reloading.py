"""Policies follow their files: a change is taken up once the set has been still for a while, or at once by signal.

Looks at every file that a policy in force was read from, through symbolic links (a mounted ConfigMap swaps one), and
hands what was read to `policies`, all sets or none. A file that is gone is a fault, not an empty policy: the last good
one stays in force until the set can be read again. A file that is written while the set is read counts as changed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from kvpolicy.faults import InputFault, PolicyFault
from kvpolicy.language.load import load, packaged_text
from kvpolicy.policy.checked import examined
from kvpolicy.policy.policy import Policy
from kvpolicy.service.policies import Policies, Version

STILL_S = 1.5  # without another change in the set
LOOK_S = 0.25

Rows = Mapping[str, object]  # what tells whether a file is another one than before, by its path
log = logging.getLogger("kvpolicy.service")


class Reloading:
    """clock: seconds, only differences count."""

    def __init__(self, policies: Policies, clock: Callable[[], float]) -> None:
        self._policies, self._clock = policies, clock
        self._targets = tuple(name for name in policies.names if not _is_packaged(name))
        self._files: dict[str, tuple[Path, ...]] = {}
        self._changed_at: float | None = None
        self._seen: Rows = {}
        texts: dict[str, str] = {}
        for name in self._targets:
            read = {str(Path(file)): text for file, text in policies.current(name).texts().items()}
            texts |= read
            self._files[name] = _on_disk(read)
        found = self._look()  # before the texts, so that nothing slips between the two
        self._taken: Rows = {}
        self._settle({path: row for path, row in found.items() if path not in texts or _text(path) == texts[path]})
        self._turn = asyncio.Lock()

    def _look(self, *, folders: bool = False) -> Rows:
        """At every file of every set. folders: also where a file may come that is missing, as after a fault."""
        paths = {path for files in self._files.values() for path in files} | set(map(Path, self._targets))
        if folders or self._policies.fault is not None:
            paths |= {path.parent for path in paths}
        return {str(path): _of_file(path) for path in sorted(paths)}

    def _settle(self, before: Rows) -> None:
        """What is on disk now is known; taken is what was there before it was read. # INVARIANT: what differs, or was
        not looked at before, is due again."""
        self._seen = self._look()
        self._taken = {path: before.get(path) for path in self._seen}
        self._changed_at = None if self._taken == self._seen else self._clock()

    def due(self, now: float) -> bool:
        """Whether the files changed and have been still since then for `STILL_S`. Looks at them."""
        seen = self._look()
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
            self._files[name] = _on_disk(checked.texts())
            made[name] = checked.policy()
        return made

    async def reload(self, source: str) -> list[Version]:
        """Read everything and bring it into force, or nothing of it. Raises PolicyFault or InputFault."""
        async with self._turn:
            before = self._look(folders=True)
            try:
                made = await asyncio.to_thread(self.read)
            except (PolicyFault, InputFault, OSError) as fault:
                self._policies.failed(str(fault))
                self._settle(before)
                log.warning("policies: what is on disk is not taken up: %s", fault)
                raise
            was_wrong = self._policies.fault is not None
            changed = self._policies.take(made, source)
            if was_wrong:
                now = ", ".join(f"{v.name} in version {v.number}" for v in changed) or "nothing of it is new"
                log.warning("policies: what is on disk is taken up again: %s", now)
            self._settle(before)
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


def _on_disk(names: Iterable[str]) -> tuple[Path, ...]:
    """Those that are files of their own; a packaged policy's is not."""
    return tuple(path for path in map(Path, names) if path.is_file())


def _text(path: str) -> str | None:
    """A file's text as policies are read."""
    try:
        return Path(path).read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
    except (OSError, UnicodeDecodeError):
        return None


def _of_file(path: Path) -> object:
    try:
        found = path.stat()
        return str(path), str(path.resolve()), found.st_mtime_ns, found.st_size, found.st_ino
    except (OSError, RuntimeError):
        return str(path), None
