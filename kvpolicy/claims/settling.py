"""What the whole ledger stands on: owners, their lines, the timers, the budget, and how a line is brought up to date.

The pool tells it of releases and of prefixes that are gone; `placing` and `ledger` build on it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from math import inf
from typing import cast

from kvpolicy.claims.budget import Budget, Limit
from kvpolicy.claims.claim import Claim
from kvpolicy.claims.line import Line
from kvpolicy.claims.owners import Holder
from kvpolicy.claims.quotas import Quotas, Share
from kvpolicy.claims.ranks import Lease, Mark, Ranks, Tiers
from kvpolicy.claims.strength import PROTECTED
from kvpolicy.claims.timers import Timers
from kvpolicy.request import Owner, OwnerKey

BUDGET = 0.40  # of the first tier
LATE_S = 1.0  # a clock that asks for the present again is a fault of ours; it must not stop the time

Replan = Callable[[Line, float], None]
Tend = Callable[[Line, float], float]


class Settling:
    """holders: owners that hold something. timers: one time per line at which it is looked at again. tend: called with
    every line whose marks were brought up to date, where a policy speaks of tiers; returns when to look again."""

    def __init__(self, ranks: Ranks, *, budget: float = BUDGET, limits: tuple[Limit, ...] = ()) -> None:
        self.ranks = ranks
        self.holders: dict[OwnerKey, Holder] = {}
        self.timers: Timers[Line] = Timers()
        self.quotas: Quotas | None = None
        self._moved = 0
        self.budget = Budget(ranks, int(budget * ranks.capacity), self._settle, limits)
        self.replan: Replan = _no_replan
        self.tend: Tend | None = None
        self.placed = 0  # plans taken up, so that a test can show who came through here
        self._turn = 0
        self._told: dict[Line, None] = {}  # in the order told: a set's order would be that of memory addresses

    def released(self, mark: Mark, now: float) -> None:
        """A mark's last block was let go: its line's clocks may run now."""
        mark.notify = False
        if isinstance(mark.claim, Line):
            self._told[mark.claim] = None

    def emptied(self, mark: Mark, now: float) -> None:
        """A mark's prefix is gone, and with it the claims behind it."""
        if isinstance(mark.claim, Line):
            self._told[mark.claim] = None

    def heed(self, now: float) -> None:
        """Take up what the pool has told since."""
        while self._told:
            line = next(iter(self._told))
            del self._told[line]
            if line.running == 0 and line.length == 0:
                self._drop(line, now)
            else:
                self.settle(line, now)
        moved = self.ranks.movements
        if moved != self._moved:  # what came up counts in the budget of the first tier
            self._moved = moved
            self.budget.keep_whole(now)
        if self.quotas is not None:
            self.quotas.keep(now)

    def share(self, shares: tuple[Share, ...]) -> None:
        """Keep quotas on tiers from now on."""
        self.quotas = Quotas(cast(Tiers, self.ranks), shares, self.settle) if shares else None

    def _counted(self, line: Line, now: float) -> None:
        """What a line covers has changed: whether its groups still fit into their tiers."""
        if self.quotas is not None:
            self.quotas.changed(line)
            self.quotas.keep(now)

    @property
    def limited(self) -> bool:
        """Whether anything but the budget of the whole may cut claims."""
        return self.quotas is not None or bool(self.budget.limits)

    def holder(self, owner: Owner) -> Holder | None:
        """What is kept of an owner; None when it holds nothing."""
        return self.holders.get(owner.key)

    def settle(self, line: Line, now: float, lease: Lease | None = None) -> None:
        """Bring a line's marks and its protection up to date."""
        if self._told:
            self._told.pop(line, None)  # what the pool told of it so far is taken up here
        if not line.claims:
            if line.running == 0:
                self._drop(line, now)
            else:
                line.clear(self.ranks, now)
                self._unprotect(line)
            return
        self._settle(line, now, lease, None if lease is None else lease.length)
        if line.pieces or line.running:
            self._protect(line, now)
        elif line.manual or not line.marks or self._outlived(line, now):
            self._drop(line, now)
        else:
            self._protect(line, now)

    def _settle(
        self, line: Line, now: float, at: Lease | Sequence[Hashable] | None = None, present: int | None = None
    ) -> None:
        due = line.settle(self.ranks, now, at, present)
        if self.tend is not None:
            due = min(due, self.tend(line, now))
        self.timers.arm(line, due if due > now else now + LATE_S)

    def _protect(self, line: Line, now: float) -> None:
        """Keep the count of who is protected since when, and the budget."""
        holder = line.holder
        if not line.pieces or line.pieces[-1][1] < PROTECTED:
            if line in holder.protecting:
                self._unprotect(line)
            return
        holder.protecting[line] = None
        if holder.since is None:
            self._turn += 1
            holder.since = self._turn
        self.budget.enter(line)
        self.budget.keep(line, now)

    def _unprotect(self, line: Line) -> None:
        line.holder.protecting.pop(line, None)
        self.budget.forget(line)
        if not line.holder.protecting:
            line.holder.since = None

    def _holder(self, owner: Owner) -> Holder:
        key = owner.key
        holder = self.holders.get(key)
        if holder is None:
            holder = self.holders[key] = Holder(owner)
        return holder

    def _forget_ends(self, line: Line, claims: Iterable[Claim]) -> None:
        if line.holder.nameless:
            for claim in claims:
                if line.holder.index.get(claim.proof) is line:
                    del line.holder.index[claim.proof]

    def _outlived(self, line: Line, now: float) -> bool:
        released = self.ranks.last_release(line.marks[0])
        return released is not None and released + line.longest_age <= now

    def _drop(self, line: Line, now: float) -> None:
        """The line is no more; an owner without lines is forgotten."""
        holder = line.holder
        self._forget_ends(line, line.claims)
        line.clear(self.ranks, now)
        line.claims = []
        line.replan = inf
        self.timers.disarm(line)
        self._unprotect(line)
        if self.quotas is not None:
            self.quotas.changed(line)
        self._told.pop(line, None)
        if line.manual:
            for key in [key for key, other in holder.manual.items() if other is line]:
                del holder.manual[key]
        chain = holder.chains.get(line.head)
        if chain is not None and line in chain.lines:
            chain.lines.remove(line)
        self._reap(holder, line.head)

    def _reap(self, holder: Holder, head: Hashable) -> None:
        chain = holder.chains.get(head)
        if chain is not None and not chain.lines and not chain.running:
            del holder.chains[head]
        if not holder.chains and not holder.manual and self.holders.get(holder.key) is holder:
            del self.holders[holder.key]


def _no_replan(line: Line, now: float) -> None:
    return
