"""The ends of requests: an answer is over, classified or withdrawn, and events end what is held until they come.

`placing` adds the beginning: what a request claims.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from kvpolicy.claims.claim import Claim
from kvpolicy.claims.line import Line
from kvpolicy.claims.owners import Holder
from kvpolicy.claims.settling import Settling
from kvpolicy.claims.strength import PROTECTED
from kvpolicy.policy.model import ANSWER_GRACE_S

CANCEL_GRACE_S = 30.0  # after a cancel, until its claims are withdrawn


class Answering(Settling):
    """What becomes of a request's claims when it ends."""

    def finish(self, line: Line, made: Iterable[Claim], now: float, classified: bool = False) -> None:
        """An answer ended, and its blocks are released. made: the claims that its request made. Unless it is classified
        already, what it protected and the rank of its output stand until `classify`, or 2 s. Holds without an event
        start. A settling of the line has to follow (`plan` or `settle`)."""
        self._leave(line)
        for claim in made:
            claim.users -= 1
            claim.settled = True
        self._over(line, now, classified)

    def _over(self, line: Line, now: float, classified: bool) -> None:
        """What the end of an answer means for the claims of a line."""
        frozen: dict[Claim, int] = {}
        waits = False
        if not classified:
            for claim in line.claims:
                strength = claim.strength(now)
                if strength >= PROTECTED or claim.kind == "output":
                    frozen[claim] = strength
                waits = waits or claim.lifetime == "request"
        for claim in line.claims:
            if claim.hold_s is not None and not claim.users:
                claim.release(now)
        if not line.running:
            line.before = None
        if classified:
            self.classify(line, now)
        elif frozen or waits:
            line.frozen, line.grace = frozen, now + ANSWER_GRACE_S

    def came(self, holder: Holder, event: str, now: float, grace: float = 0.0) -> None:
        """An event came to an owner: what it holds until that event is held no more, or for a grace until `touched`."""
        for line in holder.lines():
            ended = [claim for claim in line.claims if claim.came(event, now, now + grace)]
            if ended:
                holder.lingers = holder.lingers or grace > 0
                self.settle(line, now)

    def touched(self, holder: Holder, now: float) -> None:
        """The owner's next request has touched its blocks: graces of holds end."""
        if not holder.lingers:
            return
        holder.lingers = False
        for line in holder.lines():
            ended = [claim for claim in line.claims if now < claim.protected_until == claim.over_at]
            for claim in ended:
                claim.over_at = claim.protected_until = now
            if ended:
                self.settle(line, now)

    def classify(self, line: Line, now: float) -> None:
        """What comes after the answer is known: its graces end, and claims `for request` with them."""
        line.frozen, line.grace = None, inf
        if line.running == 0:
            line.claims = [claim for claim in line.claims if claim.lifetime != "request"]
            if not line.claims:
                self._drop(line, now)

    def cancel(self, line: Line, made: Iterable[Claim], now: float) -> None:
        """A request was withdrawn; what it alone claimed (of `made`, its claims) goes after 30 s."""
        self._leave(line)
        for claim in made:
            claim.users -= 1
            if not claim.users:
                claim.release(now)
        line.withdraw = now + CANCEL_GRACE_S
        self.settle(line, now)

    def _leave(self, line: Line) -> None:
        line.running = max(0, line.running - 1)
        chain = line.holder.chains.get(line.head)
        if chain is not None:
            chain.running = max(0, chain.running - 1)
            self._reap(line.holder, line.head)

    def _withdraw(self, line: Line, now: float) -> None:
        """What only cancelled requests claimed goes; what they had replaced counts again."""
        line.withdraw = inf
        kept = [claim for claim in line.claims if claim.settled or claim.users]
        if line.before is not None and not line.running:
            kept += [claim for claim in line.before if claim.settled and claim not in kept]
            kept.sort(key=_place_in_prompt)
            line.before = None
        if line.holder.nameless:
            self._forget_ends(line, line.claims)
            line.holder.index.update((claim.proof, line) for claim in kept if claim.full)
        line.claims = kept
        self.settle(line, now)


def _place_in_prompt(claim: Claim) -> tuple[int, float]:
    return (claim.full, inf if claim.end is None else claim.end)
