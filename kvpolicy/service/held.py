"""A plan that an engine acts on, and which engines hear of what happens to its owner.

Kept by `holding`, one a chain of an owner. An engine is known when it answers; what happens before is told it then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from typing import Any

from kvpolicy.policy.policy import Policy
from kvpolicy.request import Request
from kvpolicy.service.exchange import Exchange
from kvpolicy.service.outbox import Said
from kvpolicy.service.policies import ENFORCE
from kvpolicy.service.seen import Seen
from kvpolicy.steering.needs import needs

MOST_AFTER = 64  # things that happen while a request has no engine yet; then the oldest are forgotten
_NOWHERE: frozenset[str] = frozenset()


@dataclass(slots=True)
class Held:
    """told: the payload as last sent. valid_until: when the plan has to be read again; due: that is so already. urls:
    engines that hold something of its chain by earlier plans. untold: the plan was there before its engine was known;
    after: what has happened since, for that engine."""

    exchange: Exchange
    seen: Seen
    request: Request
    told: Mapping[str, Any] | None
    valid_until: float = inf
    due: bool = False
    urls: frozenset[str] = _NOWHERE
    untold: bool = False
    after: list[Said] | None = None

    @property
    def enforced(self) -> bool:
        """Whether engines are told of it; of what is only watched they hear nothing."""
        return self.seen.chosen.mode == ENFORCE

    @property
    def everywhere(self) -> frozenset[str]:
        """Engines that hold something of its chain."""
        url = self.exchange.upstream
        return self.urls if url is None or url in self.urls else self.urls | {url}

    def replaces(self, other: Held) -> bool:
        """Whether its request's claims take the place of another one's, of the same owner: not of one of another chain;
        nor, unless its prompt goes through that one's, of one that runs, or whose answer made a call that was open when
        this one came without its result."""
        if other.seen.arrived.chain is not self.seen.arrived.chain:
            return False
        waits = self.seen.arrived.side and other.exchange.id in self.seen.waits
        return (other.seen.over and not waits) or self._goes_through(other)

    def _goes_through(self, other: Held) -> bool:
        units = other.seen.conversation.units
        return not units or any(unit.digest == units[-1].digest for unit in self.seen.conversation.units)

    def take_over(self, before: Held) -> None:
        """It takes the place of a plan before."""
        self.urls = self.urls | before.everywhere
        if before.after:
            self.after = [*(self.after or ()), *before.after]

    def later(self, said: Said) -> None:
        """Tell this to its engine, once that is known."""
        if self.exchange.upstream is None and self.enforced:
            self.after = [*(self.after or ())[1 - MOST_AFTER :], said]


@lru_cache(maxsize=64)
def reads_others(policy: Policy) -> bool:
    """Whether what others of its run do can change what it says of an owner."""
    reads = needs(policy)
    return reads.fan_out or reads.steps
