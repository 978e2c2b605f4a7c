"""What a step of steering gives back, and what it keeps of a running request."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

from kvpolicy.claims.answers import Answer
from kvpolicy.claims.claim import Claim
from kvpolicy.claims.line import Line
from kvpolicy.directive import Plan
from kvpolicy.pool import Lease
from kvpolicy.request import Request


@dataclass(slots=True)
class Running:
    """A request between its start and its end. riders: the ids of it and of the retries that joined it. hashes: all
    its block hashes; those up to `computed` blocks have been handed to the pool. made: the claims it made."""

    request: Request
    lease: Lease
    hashes: list[Hashable]
    riders: set[str]
    computed: int
    line: Line | None = None
    made: Sequence[Claim] = ()
    plan: Plan | None = None

    @property
    def leads(self) -> Line | None:
        """Its line, unless another request of its owner has taken that over and says what its prompt is made of."""
        return self.line if self.line is not None and self.line.request is self.request else None


@dataclass(slots=True)
class Outcome:
    """cached: leading blocks found resident. stored, evicted: block hashes, in the order in which it happened.
    joined: it is a retry of a request that runs, and rides on that one. failed: planning broke, and the request was
    served as if there were no policy."""

    cached: int
    stored: list[Hashable]
    evicted: list[Hashable]
    plan: Plan | None = None
    joined: bool = False
    failed: bool = False
    _answer: Callable[[], list[Answer]] = field(default=list, repr=False)

    @property
    def hints(self) -> list[Answer]:
        """One answer for each directive, as things stand when this is read."""
        return self._answer()
