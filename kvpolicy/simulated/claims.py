"""Claims on the simulated server's blocks: what requests and messages ask for becomes ranks in the embedded pool.

`blocks` calls it around the pool's own steps. Until the first directive it does nothing and the pool is LRU alone; from
then on every request is claimed for, those that say nothing at the default rank, by the ledger of `kvpolicy.claims`,
as in a real engine. Messages of the control channel come through `take_up`; it is their `channel.messages.Engine`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from kvpolicy.channel import messages
from kvpolicy.channel.names import blocks_named, number_of
from kvpolicy.channel.payload import Told
from kvpolicy.channel.replans import Awaited
from kvpolicy.channel.running import Running, arrive
from kvpolicy.claims.ledger import BUDGET, Ledger
from kvpolicy.claims.ranks import Ranks
from kvpolicy.faults import InputFault
from kvpolicy.pool import Lease, Pool
from kvpolicy.request import Owner, Request
from kvpolicy.simulated.generation import Call

log = logging.getLogger("kvpolicy.simulated")


class Claims:
    """pool: the blocks. budget: the share of them that may be protected. ledger: None until the first directive.
    counters: `told rejected messages placed failures`."""

    def __init__(self, pool: Pool, budget: float = BUDGET) -> None:
        self.pool, self._budget = pool, budget
        self.ledger: Ledger | None = None
        self.awaited = Awaited()
        self.counters: Counter[str] = Counter()
        self._running: dict[str, Running] = {}
        self._names: dict[int, bytes] = {}
        self._copies: Counter[int] = Counter()

    # --- around the pool's steps --------------------------------------------------------------------------------------

    def came(self, call: Call, now: float) -> None:
        """A request was admitted; its blocks are not looked up yet."""
        told = self._read(call, now)
        if told is not None:
            self._engage()
        if self.ledger is None:
            return
        if told is None:
            told = Told(Request(call.id, Owner(), len(call.prompt), self.pool.block_size), {}, {})
        self.advance(now)
        self._running[call.id] = Running(call, told, arrive(self.ledger, told, call.hashes, now))
        self.ledger.heed(now)

    def left(self, call: Call) -> None:
        """It gave up before it had any block."""
        running = self._running.pop(call.id, None)
        if running is not None and self.ledger is not None:
            self.ledger.leave(running.arrival)

    def started(self, call: Call, lease: Lease, now: float) -> None:
        """It has its prompt's blocks."""
        running = self._running.get(call.id)
        if running is None or self.ledger is None:
            return
        if running.place(self.ledger, call.hashes, lease, now):
            self.counters["placed"] += 1
        self.ledger.heed(now)

    def grew(self, call: Call, now: float) -> None:
        """Its answer filled more blocks."""
        running = self._running.get(call.id)
        if running is None or self.ledger is None:
            return
        running.grow(self.ledger, call.hashes, now)
        self.ledger.heed(now)

    def ended(self, call: Call, now: float, *, cancelled: bool) -> None:
        """It has let go of its blocks."""
        running = self._running.pop(call.id, None)
        if running is None or self.ledger is None:
            return
        if running.told.follows:
            self.awaited.ended(running.told, call.hashes)
        running.end(self.ledger, now, cancelled=cancelled)
        self.ledger.heed(now)

    def advance(self, now: float) -> None:
        """What has lapsed until now lapses: called before blocks are given out."""
        if self.ledger is not None:
            self.ledger.advance(now)
            self.ledger.heed(now)

    def stored(self, hashes: Iterable[Any]) -> None:
        """Blocks that a tier has now, so that messages can name them as events do."""
        for block in hashes:
            name = number_of(block)
            self._names[name] = block
            self._copies[name] += 1

    def removed(self, hashes: Iterable[Any]) -> None:
        """Blocks that a tier has no more."""
        for block in hashes:
            name = number_of(block)
            self._copies[name] -= 1
            if self._copies[name] <= 0:
                del self._copies[name]
                self._names.pop(name, None)

    # --- messages -----------------------------------------------------------------------------------------------------

    def take_up(self, message: Mapping[str, Any], now: float) -> dict[str, Any]:
        """Do what a message of the control channel says; the answer to it. Never raises for what a message says."""
        self.counters["messages"] += 1
        try:
            if self.ledger is None:
                row = messages.unengaged(self.awaited, message, now)
                if row is not None:
                    return row
                self._engage()
            self.advance(now)
            row = messages.apply(self, message, now)
            self.advance(now)
        except InputFault as fault:
            return messages.rejected(fault)
        except Exception:
            self.counters["failures"] += 1
            log.exception("a message broke")
            return messages.ignored("a fault of ours")
        return row

    def rows(self, now: float) -> list[dict[str, Any]]:
        """Every claim, as a `show` tells it."""
        if self.ledger is None:
            return []
        self.advance(now)
        return list(messages.apply(self, {"do": "show"}, now)["claims"])

    def status(self) -> dict[str, Any]:
        """What a `ping` is answered. Reads only; called from another thread."""
        return {
            "simulated": True,
            "active": self.ledger is not None,
            "claims": 0 if self.ledger is None else self.ledger.lines,
            "protected": self.pool.protected_blocks,
            "blocks": self.pool.capacity,
            "block_size": self.pool.block_size,
            "budget": self._budget,
            "counters": dict(self.counters),
        }

    def named(self, names: Sequence[int | str]) -> list[bytes]:
        """Blocks by the names that events give them, up to the first that is not cached."""
        return blocks_named(names, self._names)

    def ranks_of(self, hashes: Sequence[Any]) -> list[int]:
        """The strengths of a prompt's leading blocks, up to the first that is not cached."""
        ranks: list[int] = []
        for end, view in self.pool.stretches(hashes, len(hashes)):
            ranks += [view.rank] * (min(end, len(hashes)) - len(ranks))
        return ranks

    def requests(self) -> Iterable[Running]:
        """Those that run or wait."""
        return self._running.values()

    def hashes_of(self, running: Running) -> Sequence[bytes]:
        """Those of a running request's full blocks so far."""
        return list(running.request.hashes)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _read(self, call: Call, now: float) -> Told | None:
        if call.directives is None:
            return None
        try:
            told = self.awaited.read(call.directives, call.id, len(call.prompt), self.pool.block_size, now)
        except InputFault as fault:
            self.counters["rejected"] += 1
            log.warning("request %s: %s; it is served as one that says nothing", call.id, fault)
            return None
        self.counters["told"] += 1
        return told

    def _engage(self) -> None:
        if self.ledger is None:
            self.ledger = Ledger(cast(Ranks, self.pool), budget=self._budget)
            self.pool.listener = cast(Any, self.ledger)
