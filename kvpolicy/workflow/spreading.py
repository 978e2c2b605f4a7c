"""An event on its way to many owners, a part of them at a time, so that nobody else waits for all of them.

`state` begins one where an event may reach more owners than it takes in one step (`RunState.at_once`), and whoever
serves requests goes on with it between them. Which owners could be meant is fixed when the event happens; whether one
is, by fields that it may move (its node, its open calls), is looked at when its turn comes.

    # INVARIANT: an owner has all that happened before it is touched by anything else: each owner's order is the one in
    # which things happened, whoever's turn it is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from kvpolicy.workflow.events import Event
from kvpolicy.workflow.life import Life
from kvpolicy.workflow.run_keys import RunKey

MOST = 4  # of one tenant on their way at once; whoever asks for more is told to wait


class Spread:
    """event: what happened. stated: fields that an owner has to agree with when its turn comes, None: all are meant.
    reached: owners so far. runs: those that have heard of it. could: how many owners it may reach at most."""

    __slots__ = ("_at", "_left", "_order", "could", "event", "reached", "runs", "stated")

    def __init__(self, event: Event, lives: Iterable[Life], stated: Mapping[str, object] | None) -> None:
        self.event, self.stated = event, stated
        self._order = list(lives)
        self._left = lives.copy() if isinstance(lives, dict) else dict.fromkeys(self._order)  # as the first is quicker
        self._at = 0
        self.could = len(self._order)
        self.reached = 0
        self.runs: set[RunKey] = set()

    @property
    def tenant(self) -> object:
        """Whose owners they are; None where nobody says so."""
        return self.event.attributes.get("tenant")

    @property
    def is_over(self) -> bool:
        """Whether everybody's turn has come."""
        return not self._left

    def take(self, life: Life) -> bool:
        """It is this owner's turn. False where it had it, or is not meant."""
        if life not in self._left:
            return False
        del self._left[life]
        return True

    def following(self, most: int) -> list[Life]:
        """Whose turn it is next."""
        found: list[Life] = []
        while len(found) < most and self._at < len(self._order):
            life = self._order[self._at]
            self._at += 1
            if self.take(life):
                found.append(life)
        return found


class Spreading:
    """All that are on their way, in the order in which they happened."""

    def __init__(self) -> None:
        self.begun: deque[Spread] = deque()
        self._last: set[object] = set()  # tenants who have had their turn in this round

    def __bool__(self) -> bool:
        return bool(self.begun)

    def is_crowded(self, tenant: object) -> bool:
        """Whether one of a tenant's has to end before another may begin."""
        return len(self.begun) >= MOST and sum(each.tenant == tenant for each in self.begun) >= MOST

    def next(self) -> Spread:
        """Whose turn it is: tenants take turns, and each has its own in the order in which they happened."""
        last = self._last
        others = next((each for each in self.begun if each.tenant not in last), None)
        if others is None:
            last.clear()
            others = self.begun[0]
        last.add(others.tenant)
        return others

    def of(self, life: Life) -> list[Spread]:
        """Those whose turn of this owner is still to come, in their order; it is now."""
        return [spread for spread in self.begun if spread.take(life)]

    def end(self) -> list[Spread]:
        """Take out what is over."""
        over = [spread for spread in self.begun if spread.is_over]
        for spread in over:
            self.begun.remove(spread)
        return over
