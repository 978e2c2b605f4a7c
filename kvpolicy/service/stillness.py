"""Whether files changed, and have been still since then: what is being written is not read in the middle.

Used by `reloading` for policies and by `following` for the configuration. Files are looked at through symbolic links (a
mounted ConfigMap swaps one); one that is missing counts as it is, and so does one that comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

STILL_S = 1.5  # without another change in the set
LOOK_S = 0.25

Rows = Mapping[str, object]  # what tells whether a file is another one than before, by its path


class Stillness:
    """paths: which are looked at now; wrong: whether something is, so that they are looked at with the folders in which
    they lie, where one may have to come. clock: seconds, only differences count."""

    def __init__(
        self, paths: Callable[[], Iterable[Path]], wrong: Callable[[], bool], clock: Callable[[], float]
    ) -> None:
        self._paths, self._wrong, self._clock = paths, wrong, clock
        self._changed_at: float | None = None
        self._seen: Rows = {}
        self._taken: Rows = {}

    def look(self, *, folders: bool = False) -> Rows:
        """At every path now. folders: in any case, as before something that may turn out to be wrong."""
        found = set(self._paths())
        if folders or self._wrong():
            found |= {path.parent for path in found}
        return {str(path): _of_file(path) for path in sorted(found)}

    def settle(self, before: Rows) -> None:
        """What is on disk now is known; taken is what was there before it was read. # INVARIANT: what differs, or was
        not looked at before, is due again."""
        self._seen = self.look()
        self._taken = {path: before.get(path) for path in self._seen}
        self._changed_at = None if self._taken == self._seen else self._clock()

    def widen(self, known: Rows) -> None:
        """Other paths are looked at from now on. known: what the new ones were as they were read; of those that were
        looked at before, what was taken stays."""
        self.settle({**known, **self._taken})

    def due(self, now: float) -> bool:
        """Whether the files changed and have been still since then for `STILL_S`. Looks at them."""
        seen = self.look()
        if seen != self._seen:
            self._seen, self._changed_at = seen, now
        if self._changed_at is None or now - self._changed_at < STILL_S:
            return False
        self._changed_at = None
        return seen != self._taken


def _of_file(path: Path) -> object:
    try:
        found = path.stat()
        return str(path), str(path.resolve()), found.st_mtime_ns, found.st_size, found.st_ino
    except (OSError, RuntimeError):
        return str(path), None
