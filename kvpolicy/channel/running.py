"""A request that an engine runs, as the claims side knows it. Kept by the engine's own id of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kvpolicy.channel.payload import Told
from kvpolicy.claims.claim import Claim
from kvpolicy.claims.ledger import Arrival
from kvpolicy.claims.line import Line
from kvpolicy.pool.lease import Lease


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
