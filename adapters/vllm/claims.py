"""Claims in a vLLM engine while its blocks leave by rank: what requests and messages ask for, on the blocks they hold.

Made by `keeper` at the first directive, and gone with the first fault. Every request's blocks are claimed, those of
requests that say nothing at the default rank; the ledger of `kvpolicy.claims` keeps the contract. `holdings` says which
blocks a request has, `trunk` what of that is held, shared or gone; the life of a request's claims is that of every
engine (`kvpolicy.channel.running`). It is the `channel.messages.Engine` of its engine. What is raised in here is the
keeper's to catch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kvpolicy.adapters.vllm.holdings import Holdings
from kvpolicy.adapters.vllm.ranked import Ranked
from kvpolicy.adapters.vllm.trunk import Trunk
from kvpolicy.channel import messages
from kvpolicy.channel.payload import Told
from kvpolicy.channel.replans import Awaited
from kvpolicy.channel.running import Running, arrive
from kvpolicy.claims.ledger import Ledger
from kvpolicy.request import Owner, Request


class Claims:
    """scheduler: vLLM's. ranked: the order of its free blocks. budget: the share of blocks that may be protected.
    counters: `placed resets` are counted here."""

    def __init__(
        self,
        scheduler: Any,
        holdings: Holdings,
        ranked: Ranked,
        budget: float,
        awaited: Awaited,
        counters: Counter[str],
    ) -> None:
        self._scheduler = scheduler
        self._holdings = holdings
        self._counters = counters
        self.awaited = awaited
        self.trunk = trunk = Trunk(ranked, holdings.capacity, holdings.find)
        self.ledger = trunk.listener = Ledger(trunk, budget=budget)
        self.running: dict[str, Running] = {}
        self._filling: dict[str, Running] = {}  # those whose prompt is not all cached yet
        self._table = holdings.pool.cached_block_hash_to_block  # vLLM makes another one at a reset

    # --- a request's life -------------------------------------------------------------------------------------------

    def begin(self, now: float) -> None:
        """Claim for what runs already."""
        for request in list(self._scheduler.running):
            self._place(self.came(request, None, now), 0, now)
        self.heed(now)

    def came(self, request: Any, told: Told | None, now: float) -> Running:
        """A request was added. told: what it says, None where it says nothing."""
        known = self.running.get(request.request_id)
        if known is not None:
            return known
        self.heed(now)
        told = told or self._untold(request)
        arrival = arrive(self.ledger, told, self._holdings.hashes(request), now)
        self.running[request.request_id] = running = Running(request, told, arrival)
        self.ledger.heed(now)
        return running

    def scheduled(self, counts: Mapping[str, int], now: float) -> None:
        """A step's blocks are given out; counts: tokens by request. Those that were given their first make their
        claims. What an answer fills is claimed when it leaves."""
        self.heed(now)
        changed = False
        for request_id, count in counts.items():
            running = self.running.get(request_id)
            if running is not None and running.lease is not None and request_id not in self._filling:
                continue
            request = self._scheduler.requests.get(request_id)
            if request is None:
                continue
            if running is None:
                running = self.came(request, None, now)
            if running.lease is None:
                self._place(running, request.num_computed_tokens - count, now)
            else:
                self._grow(running, now)
            changed = True
        if changed:
            self.heed(now)

    def leaving(self, request: Any, now: float) -> None:
        """A request's blocks are freed next. Claims come first, so that its blocks enter the queue at their ranks. What
        the answer filled is claimed here at once: nothing that a request holds can leave before."""
        running = self.running.get(request.request_id)
        if running is None:
            return
        self.heed(now)
        if running.lease is not None and not running.lease.released:
            self._grow(running, now)
            self.trunk.release(running.lease, now)
        self._filling.pop(request.request_id, None)
        if not request.is_finished():
            running.preempt(self.ledger, now)
        else:
            del self.running[request.request_id]
            if running.told.follows:
                self.awaited.ended(running.told, self._holdings.hashes(request))
            running.end(self.ledger, now, cancelled=request.status.name == "FINISHED_ABORTED")
        self.heed(now)

    # --- time, and blocks that go otherwise -------------------------------------------------------------------------

    def advance(self, now: float) -> None:
        """What has lapsed by now lapses."""
        self.heed(now)
        self.look_for_reset(now)
        self.ledger.advance(now)
        self.trunk.lapse(now)

    def look_for_reset(self, now: float) -> None:
        """Whether the prefix cache was reset: then nothing is claimed any more."""
        table = self._holdings.pool.cached_block_hash_to_block
        if table is self._table:
            return
        self._table = table
        self._counters["resets"] += 1
        self.trunk.take_up()
        self.trunk.forget(now)
        self.heed(now)

    def uncached(self, block_ids: Iterable[int], now: float) -> None:
        """These are in no look-up any more, wherever they stand."""
        self.heed(now)
        self.trunk.uncached(block_ids, now)
        self.heed(now)

    def heed(self, now: float) -> None:
        """Take up what has left, and what that ends. Before anything else is asked of `trunk` or `ledger`."""
        self.trunk.take_up()
        self.trunk.tell_emptied()
        self.ledger.heed(now)

    # --- messages: `channel.messages.Engine` ------------------------------------------------------------------------

    def take_up(self, message: Mapping[str, Any], now: float) -> dict[str, Any]:
        """Do what a message says; the answer to it. Raises InputFault for what cannot be meant."""
        self.advance(now)
        row = messages.apply(self, message, now)
        self.heed(now)
        return row

    def named(self, names: Sequence[int | str]) -> Sequence[Any]:
        """Blocks by the names that the engine's events give them, up to the first that is not cached."""
        return self._holdings.named(names)

    def ranks_of(self, hashes: Sequence[Any]) -> list[int]:
        """The strengths of a prompt's leading blocks, up to the first that is not cached."""
        keys, _ = self._holdings.find(hashes)
        return [self.trunk.rank_of(key) for key in keys]

    def requests(self) -> Iterable[Running]:
        """Those that run."""
        return self.running.values()

    def hashes_of(self, running: Running) -> Sequence[Any]:
        """Those of a running request's full blocks so far."""
        return self._holdings.hashes(running.request)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _untold(self, request: Any) -> Told:
        session = getattr(request, "session_id", None)
        owner = Owner(session=str(session)) if session else Owner()
        return Told(Request(request.request_id, owner, request.num_prompt_tokens, self._holdings.unit), {}, {})

    def _place(self, running: Running, cached_tokens: int, now: float) -> None:
        """It has been given its first blocks, or blocks again after a preemption."""
        request = running.request
        lease = self.trunk.lease(now)
        keys, sides = self._holdings.cached(request.request_id, 0)
        self.trunk.enter(lease, keys, sides, now, hits=max(0, cached_tokens) // self._holdings.unit)
        if running.place(self.ledger, self._holdings.hashes(request), lease, now):
            self._counters["placed"] += 1
        if not self._filled(running):
            self._filling[request.request_id] = running

    def _grow(self, running: Running, now: float) -> None:
        """More of a running request is cached."""
        lease = running.lease
        assert lease is not None
        keys, sides = self._holdings.cached(running.request.request_id, lease.length)
        if keys:
            self.trunk.enter(lease, keys, sides, now)
            running.grow(self.ledger, self._holdings.hashes(running.request), now)
        if self._filled(running):
            self._filling.pop(running.request.request_id, None)

    def _filled(self, running: Running) -> bool:
        """Whether all of its prompt that can be cached is."""
        assert running.lease is not None
        return running.lease.length >= running.told.request.tokens // self._holdings.unit
