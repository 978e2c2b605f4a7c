"""The ledger: what every owner claims, from the first request to the last lapse.

Steering feeds it requests with their directives, ends of requests, and events; it keeps lines of claims and puts their
marks into the pool. Each call is a step at `now` (seconds, never going back); `advance` first makes what has lapsed
until then lapse, each at its own time.

    arrive   what a new request shows to be dead ends          place    its claims, once the engine has stored blocks
    grow     more blocks stored                                 plan     the same request read again
    finish   an answer ended        cancel   withdrawn          claim    a claim by call        release / end   the end
    resume   it goes on after a preemption                      pass_by  a request that ends as it comes
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from math import inf

from kvpolicy.claims import dead
from kvpolicy.claims.answering import CANCEL_GRACE_S
from kvpolicy.claims.claim import Claim
from kvpolicy.claims.line import Line
from kvpolicy.claims.owners import Holder
from kvpolicy.claims.passing import Passing
from kvpolicy.claims.settling import BUDGET
from kvpolicy.request import Owner

MOST_LOOKS = 256  # of one line in one step of the clock: more than a rank has values


class Ledger(Passing):
    """budget: the share of the first tier that may be protected. limits: quotas besides. replan: called with a line
    whose plan has to be read again at a time of its own (set by steering)."""

    def advance(self, now: float) -> None:
        """Everything that lapses until `now`, each at its own time.

        A line that wants to be looked at again and again on the way is looked at `MOST_LOOKS` times and then at `now`:
        a clock that leaps costs no more than one that goes on.
        """
        looks: dict[Line, int] = {}
        while (due := self.timers.pop(now)) is not None:
            at, line = due
            if line.withdraw <= at:
                self._withdraw(line, at)
            if line.grace <= at:
                self.classify(line, at)
                line.replan = min(line.replan, at)
            if line.replan <= at and line.claims:
                line.replan = inf
                self.replan(line, at)
            self.settle(line, at)
            if self.tend is not None:  # blocks may have moved
                self.heed(at)
            looks[line] = count = looks.get(line, 0) + 1
            if count >= MOST_LOOKS:
                self.timers.put_off(line, now)

    def claim(self, owner: Owner, hashes: Sequence[Hashable], claim: Claim, now: float) -> Line | None:
        """A claim by call for the prompt with these block hashes; None where none of it is resident. A second one for
        the same blocks replaces it and keeps the clocks of `fixed` and `hold`."""
        holder = self._holder(owner)
        claim.length = claim.full = len(hashes)
        claim.proof, claim.born, claim.settled = hashes[-1], now, True
        key = (claim.full, claim.proof)
        line = holder.manual.get(key)
        if line is None:
            line = Line(holder, None)
            line.manual = True
        else:
            claim.first, claim.hold_from = line.claims[0].first, line.claims[0].hold_from
            claim.apply(claim.directive, nameless=False)
        claim.release(now)
        for other in holder.lines():
            if not other.manual and dead.yield_to(other, hashes):
                self.settle(other, now)
        line.claims, line.granted, line.cut = [claim], inf, False
        holder.manual[key] = line
        self._settle(line, now, hashes, len(hashes))
        if line.length == 0:
            self._drop(line, now)
            return None
        self._protect(line, now)
        self._counted(line, now)
        return line

    def release(self, owner: Owner, now: float, hashes: Sequence[Hashable] | None = None) -> int:
        """All claims of an owner end, or those whose end lies among `hashes`. Returns how many; again does nothing."""
        holder = self.holders.get(owner.key)
        named = None if hashes is None else set(hashes)
        return 0 if holder is None else self._end(holder, lambda c: named is None or c.proof in named, now)

    def end(self, holder: Holder, lifetimes: frozenset[str], now: float) -> int:
        """The owner's claims with these lifetimes end; what it has dropped stays dropped."""
        return self._end(holder, lambda c: c.lifetime in lifetimes and not c.dropped, now)

    def release_all(self, now: float) -> int:
        """An operator takes all protection back; ranks stay. Returns how many lines lost some."""
        lines = [line for holder in list(self.holders.values()) for line in holder.protecting]
        for line in lines:
            line.granted = 0
            line.frozen = None
            self.settle(line, now)
        return len(lines)

    @property
    def lines(self) -> int:
        """Lines of claims, of all owners."""
        return sum(len(holder.lines()) for holder in list(self.holders.values()))

    def _end(self, holder: Holder, ends: Callable[[Claim], bool], now: float) -> int:
        count = 0
        for line in holder.lines():
            kept = [claim for claim in line.claims if not ends(claim)]
            if len(kept) < len(line.claims):
                count += len(line.claims) - len(kept)
                self._forget_ends(line, [claim for claim in line.claims if ends(claim)])
                line.claims = kept
                if kept or line.running:
                    self._settle(line, now)
                    self._protect(line, now)
                else:
                    self._drop(line, now)
        return count


__all__ = ["BUDGET", "CANCEL_GRACE_S", "Ledger"]
