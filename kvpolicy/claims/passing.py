"""Requests that end in the instant in which they come, and claim once: a beginning and an end in one.

Of `place` and `finish` only what stays is done. Steering asks `passes` whether that is all there is to it.
"""

from __future__ import annotations

from collections.abc import Mapping

from kvpolicy.claims.arrival import Arrival
from kvpolicy.claims.claim import spread_drops
from kvpolicy.claims.line import Line
from kvpolicy.claims.placing import Placing
from kvpolicy.claims.ranks import Lease
from kvpolicy.claims.wish import Wish


class Passing(Placing):
    """Requests without a duration, as far as claims go."""

    def passes(self, arrival: Arrival) -> bool:
        """Whether the claims of a request that has come are its owner's only ones, and no others' business: nobody
        else's request runs on them, and nothing but the budget of the whole may cut them."""
        holder = self.holder(arrival.request.owner)
        if holder is None or holder.nameless or self.limited or self.tend is not None:
            return False
        lines = holder.lines()
        if not lines:
            return True
        line = lines[0]
        alone = len(lines) == 1 and line.head == arrival.head and not line.running
        return alone and line.reproduced(arrival.hashes) == len(line.claims)

    def pass_by(
        self,
        arrival: Arrival,
        wishes: Mapping[int, Wish | None],
        lease: Lease,
        now: float,
        replan: float | None = None,
        *,
        classified: bool,
    ) -> Line:
        """`place` and `finish` in one, where it `passes`: the request's answer is over as it comes, and its blocks are
        released. wishes: by span, as they are by now."""
        _, line = self._claim(arrival, arrival.hashes, wishes, now, replan)
        for claim in line.claims:
            claim.settled = True
        try:
            self._over(line, now, classified)
            if line.claims:
                if spread_drops(line.claims):
                    self._spread_beyond(line, now)
                line.pieces = []
                self._unprotect(line)  # while it ran, nothing was
                self.settle(line, now, lease)
        except Exception:
            self._undo(line, now)
            raise
        return line
