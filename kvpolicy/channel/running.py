"""A request that an engine runs, and the life of its claims: it arrives, is placed, grows, is preempted, ends.

The same in every engine that kvpolicy runs in (`adapters/vllm/claims.py`, `kvpolicy/simulated/claims.py`), which says
what blocks the request holds and when it lets go of them. Kept by the engine's own id of the request.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from kvpolicy.blocks import lay_out
from kvpolicy.channel.payload import Told
from kvpolicy.claims.arrival import Arrival
from kvpolicy.claims.claim import Claim
from kvpolicy.claims.ledger import Ledger
from kvpolicy.claims.line import Line
from kvpolicy.claims.owners import Holder
from kvpolicy.policy.model import GRACE_S, RESUMES
from kvpolicy.pool.lease import Lease

Hashes = Sequence[Hashable]  # of the request's full blocks so far


def happened(ledger: Ledger, holder: Holder, event: str, now: float, *, noticed: bool = False) -> None:
    """Something happened to an owner: what it holds until then is held no more. What a pause kept stays for the request
    that ends it, until that has its blocks. noticed: nobody said so, it was seen in a prompt; a prompt that becomes
    shorter may be another one, so the one before dies as it does by itself."""
    ledger.came(holder, event, now, GRACE_S if event in RESUMES else 0.0)
    if event == "compact" and not noticed:
        for chain in holder.chains.values():
            chain.compacted = True


def arrive(ledger: Ledger, told: Told, hashes: Hashes, now: float, *, anew: bool = False) -> Arrival:
    """A request has come that says this, and its blocks are not looked up yet: what it shows to be dead ends. anew: it
    came before, and said something else; what had happened by its coming has not happened again."""
    holder = ledger.holder(told.request.owner)
    if holder is not None and not anew:
        for event in told.request.events:
            happened(ledger, holder, event, now)
    return ledger.arrive(told.request, lay_out(told.request), hashes, now, waits=told.request.waits)


@dataclass(slots=True)
class Running:
    """request: the engine's. lease: the blocks it holds, None before it has any and while it is preempted. line, made:
    its claims."""

    request: Any
    told: Told
    arrival: Arrival
    lease: Lease | None = None
    line: Line | None = None
    made: list[Claim] = field(default_factory=list)

    @property
    def leads(self) -> Line | None:
        """Its line, unless another request of its owner has taken that over and says what its prompt is made of."""
        return self.line if self.line is not None and self.line.request is self.told.request else None

    def place(self, ledger: Ledger, hashes: Hashes, lease: Lease, now: float) -> bool:
        """It has been given blocks: it makes its claims (then True), or they go on after a preemption."""
        self.lease = lease
        ledger.heed(now)
        if self.line is not None:
            if self.leads is not None:
                ledger.resume(self.leads, self.made, hashes, cast(Any, lease), now)
            return False
        holder = ledger.holder(self.told.request.owner)
        if holder is not None:
            ledger.touched(holder, now)
        line = ledger.place(self.arrival, hashes, self.told.directives.values(), cast(Any, lease), now)
        line.outline = self.told.names
        self.line, self.made = line, line.claims
        return True

    def grow(self, ledger: Ledger, hashes: Hashes, now: float) -> None:
        """More of its blocks are cached."""
        if self.leads is not None:
            ledger.grow(self.leads, hashes, cast(Any, self.lease), now)

    def preempt(self, ledger: Ledger, now: float) -> None:
        """It has let go of its blocks, and will go on later: its claims stand, and their clocks run."""
        self.lease = None
        if self.line is not None:
            ledger.settle(self.line, now)

    def end(self, ledger: Ledger, now: float, *, cancelled: bool) -> None:
        """It has let go of its blocks for good."""
        if self.line is None:
            ledger.leave(self.arrival)
        elif cancelled:
            ledger.cancel(self.line, self.made, now)
        else:
            ledger.finish(self.line, self.made, now)
            ledger.settle(self.line, now)
