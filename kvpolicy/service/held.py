"""Plans that engines act on, and which engines hear of what happens to their owners.

Kept by `holding`. An engine is known when the request goes out to it; another one may be asked where that is not there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from typing import Any

from kvpolicy.policy.policy import Policy
from kvpolicy.request import Owner, Request
from kvpolicy.service.exchange import Exchange
from kvpolicy.service.meaning.sessions import Chain
from kvpolicy.service.policies import ENFORCE
from kvpolicy.service.seen import Seen
from kvpolicy.steering.needs import needs

MOST_OWNERS = 100_000
MOST_PLANS = 16  # of one owner
_NOWHERE: frozenset[str] = frozenset()


@dataclass(slots=True)
class Held:
    """told: the payload as last sent. valid_until: when the plan has to be read again; due: that is so already. urls:
    engines that hold something of its chain by earlier plans. at: the engine that was told of it last; untold: it was
    there before an engine was known."""

    exchange: Exchange
    seen: Seen
    request: Request
    told: Mapping[str, Any] | None
    valid_until: float = inf
    due: bool = False
    urls: frozenset[str] = _NOWHERE
    at: str | None = None
    untold: bool = False

    @property
    def enforced(self) -> bool:
        """Whether engines are told of it; of what is only watched they hear nothing."""
        return self.seen.chosen.mode == ENFORCE

    @property
    def url(self) -> str | None:
        """Its engine: the one that answers, until then the one that was asked last."""
        return self.exchange.upstream or self.exchange.engine

    @property
    def everywhere(self) -> frozenset[str]:
        """Engines that hold something of its chain."""
        url = self.url
        return self.urls if url is None or url in self.urls else self.urls | {url}

    def same_chain(self, other: Held) -> bool:
        """Whether both are plans of one chain."""
        return other.seen.arrived.chain is self.seen.arrived.chain

    def replaces(self, other: Held, busy: bool) -> bool:
        """Whether its request's claims take the place of another one's, of the same owner: not of one of another chain;
        nor while the chain is busy (nothing of it dies then), but of one that runs and whose prompt it goes through."""
        if not self.same_chain(other):
            return False
        return not busy if other.seen.over else self._goes_through(other)

    def keeps_busy(self, other: Held) -> bool:
        """Whether its chain is busy by another request of it: one that runs, or whose answer made a call that was open
        when this one came without its result."""
        if other.exchange is self.exchange or not self.same_chain(other):
            return False
        waits = () if self.seen.brings else self.seen.waits
        return not other.seen.over or other.exchange.id in waits or None in waits

    def _goes_through(self, other: Held) -> bool:
        units = other.seen.conversation.units
        return not units or any(unit.digest == units[-1].digest for unit in self.seen.conversation.units)

    def take_over(self, before: Held) -> None:
        """It takes the place of a plan before."""
        self.urls = self.urls | before.everywhere


class Plans:
    """Those that are held: of each owner, the latest heard of last; and by their requests' ids."""

    def __init__(self) -> None:
        self._owners: OrderedDict[Owner, OrderedDict[str, Held]] = OrderedDict()
        self._by_id: dict[str, Held] = {}

    def __len__(self) -> int:
        return len(self._owners)

    @property
    def count(self) -> int:
        """How many, of all owners."""
        return len(self._by_id)

    def all(self) -> Iterator[tuple[Owner, tuple[Held, ...]]]:
        """Every owner with its plans, the latest heard of last."""
        for owner, plans in list(self._owners.items()):
            yield owner, tuple(plans.values())

    def of(self, owner: Owner) -> tuple[Held, ...]:
        """The plans of an owner."""
        plans = self._owners.get(owner)
        return () if plans is None else tuple(plans.values())

    def find(self, request_id: str) -> Held | None:
        """The plan of a request, while it is held."""
        return self._by_id.get(request_id)

    def holds(self, held: Held) -> bool:
        """Whether it is one of them still."""
        return self._by_id.get(held.exchange.id) is held

    def knows(self, owner: Owner) -> bool:
        """Whether engines hold something for it by our plans."""
        return owner in self._owners

    def last(self, owner: Owner, chain: Chain) -> Held | None:
        """The newest plan of an owner's chain."""
        return next((held for held in reversed(self.of(owner)) if held.seen.arrived.chain is chain), None)

    def put(self, held: Held) -> None:
        """Take a plan in, and let go of those whose place it takes."""
        owner = held.seen.arrived.owner
        others = self.of(owner)
        busy = any(held.keeps_busy(each) for each in others)
        for each in others:
            if held.replaces(each, busy):
                held.take_over(each)
                self.drop(each)
        plans = self._owners.setdefault(owner, OrderedDict())
        self._owners.move_to_end(owner)
        plans[held.exchange.id] = self._by_id[held.exchange.id] = held
        if len(plans) > MOST_PLANS:
            self.drop(next(iter(plans.values())))
        if len(self._owners) > MOST_OWNERS:
            for each in self.of(next(iter(self._owners))):
                self.drop(each)

    def drop(self, held: Held) -> None:
        """Let go of a plan."""
        owner = held.seen.arrived.owner
        plans = self._owners[owner]
        del plans[held.exchange.id], self._by_id[held.exchange.id]
        if not plans:
            del self._owners[owner]


class Awaited:
    """Requests whose plans are to follow, by owner: no more than places are asked for at a time, as whoever asks for
    some is told in any case."""

    def __init__(self) -> None:
        self._owners: dict[Owner, set[Seen]] = {}

    def __len__(self) -> int:
        return len(self._owners)

    def add(self, seen: Seen) -> None:
        """Its plan is to follow it."""
        self._owners.setdefault(seen.arrived.owner, set()).add(seen)

    def discard(self, seen: Seen) -> None:
        """Its plan is made now, or none will be."""
        waiting = self._owners.get(seen.arrived.owner, set())
        waiting.discard(seen)
        if not waiting:
            self._owners.pop(seen.arrived.owner, None)

    def end(self, owner: Owner, lifetimes: frozenset[str]) -> None:
        """Claims of these have ended before the plans that would make them are there."""
        for seen in self._owners.get(owner, ()):
            seen.ends |= lifetimes


@lru_cache(maxsize=64)
def reads_others(policy: Policy) -> bool:
    """Whether what others of its run do can change what it says of an owner."""
    reads = needs(policy)
    return reads.fan_out or reads.steps
