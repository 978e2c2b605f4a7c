"""Runs in which somebody did something, so that what is planned for the others there may be another thing now.

Noted by `holding` with every arrival, answer and event; the owners of a run are gone through in its turns between
requests, for there may be many thousands.
"""

from __future__ import annotations

from collections.abc import Iterable

from kvpolicy.request import Owner
from kvpolicy.workflow.state import RunState


class Stepping:
    """state: knows who is of a run (of a session, where there is none)."""

    def __init__(self, state: RunState) -> None:
        self._state = state
        self._runs: dict[Owner, set[Owner]] = {}  # by what names a run: who did something there last
        self._left: list[Owner] = []  # of the run that is being gone through
        self._planned: set[Owner] = set()

    def __bool__(self) -> bool:
        """Whether somebody's turn has not come."""
        return bool(self._runs or self._left)

    def note(self, owners: Iterable[Owner]) -> None:
        """These did something together, and their own plans know of it. Whoever did something in their runs before is
        one of the others now."""
        runs: dict[Owner, set[Owner]] = {}
        for owner in owners:
            runs.setdefault(_run_of(owner), set()).add(owner)
        self._runs |= runs

    def take(self, most: int) -> list[Owner]:
        """The next of the others, so many at most; none: all have had their turn."""
        found: list[Owner] = []
        while not found and self:
            if not self._left:
                run = next(iter(self._runs))
                self._planned = self._runs.pop(run)
                self._left = list(self._state.run_mates(run))
            found = [owner for owner in self._left[-most:] if owner not in self._planned]
            del self._left[-most:]
        return found


def _run_of(owner: Owner) -> Owner:
    """One that stands for all of its run."""
    return Owner(owner.tenant, run=owner.run) if owner.run is not None else Owner(owner.tenant, session=owner.session)
