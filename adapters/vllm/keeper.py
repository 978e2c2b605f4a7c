"""Claims in a vLLM engine: what requests and messages ask for becomes ranks of the blocks that the scheduler holds.

`scheduler` calls it around the scheduler's own steps, in the engine's thread. Until the first directive it does
nothing and vLLM's own queue is in place; from then on every request's blocks are claimed, those of requests that say
nothing at the default rank, and the ledger of `kvpolicy.claims` keeps the contract.

INVARIANT: no exception of ours reaches a step. One that is raised anywhere here puts the stock queue back, in the
order of the moment, forgets all claims and is counted; after `MOST_FAULTS` the adapter stays off.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kvpolicy.adapters.vllm.carried import carried_by
from kvpolicy.adapters.vllm.holdings import Holdings
from kvpolicy.adapters.vllm.queue import RankedQueue
from kvpolicy.adapters.vllm.trunk import Trunk
from kvpolicy.blocks import lay_out
from kvpolicy.channel import messages
from kvpolicy.channel.payload import Told, read
from kvpolicy.channel.replans import Awaited
from kvpolicy.channel.running import Running
from kvpolicy.claims.ledger import BUDGET, Ledger
from kvpolicy.faults import InputFault
from kvpolicy.request import Owner, Request

log = logging.getLogger("vllm.kvpolicy")

MOST_FAULTS = 8
_BOUND = ("touch", "evict_blocks")
DRAIN_MOST, DRAIN_WITHIN_S = 64, 0.002  # messages taken up in one step


class Keeper:
    """scheduler: a built vLLM scheduler. clock: seconds, never going back. budget: the share of blocks that may be
    protected. engaged: a directive has come, and our queue is in place. off: why nothing is done any more, or None.

    Raises ValueError where the scheduler caches nothing by prefix."""

    def __init__(self, scheduler: Any, clock: Callable[[], float], *, budget: float = BUDGET) -> None:
        self._scheduler = scheduler
        self._clock = clock
        self._budget = budget
        self.holdings = Holdings(scheduler)
        self.pool = self.holdings.pool
        self.counters: Counter[str] = Counter()
        self.channel: Any = None
        self.engaged = False
        self.off: str | None = None
        self.running: dict[str, Running] = {}
        self._filling: dict[str, Running] = {}
        self.awaited = Awaited()
        self.queue: RankedQueue | None = None
        self.trunk: Trunk | None = None
        self.ledger: Ledger | None = None
        self._table: object = None

    # --- what the scheduler calls: none of these raises -------------------------------------------------------------

    def came(self, request: Any) -> None:
        """A request was added."""
        if self.off is not None:
            return
        try:
            self._came(request)
        except Exception as fault:
            self._failed("came", fault)

    def before_step(self) -> None:
        """A step begins: messages are taken up, and what has lapsed by now lapses."""
        channel = self.channel
        if channel is not None and channel.pending:
            self.drain()
        if not self.engaged:
            return
        try:
            self._advance(self._clock())
        except Exception as fault:
            self._failed("before_step", fault)

    def after_schedule(self, output: Any) -> None:
        """The step's blocks are given out: requests that were given their first are claimed for."""
        if not self.engaged:
            return
        try:
            self._after_schedule(output.num_scheduled_tokens)
        except Exception as fault:
            self._failed("after_schedule", fault)

    def leaving(self, request: Any) -> None:
        """A request's blocks are freed next, as it is done, aborted or preempted."""
        if not self.engaged:
            return
        try:
            self._leaving(request)
        except Exception as fault:
            self._failed("leaving", fault)

    def after_reset(self) -> None:
        """The prefix cache was reset, or that was tried."""
        if not self.engaged:
            return
        try:
            self._look_for_reset(self._clock())
        except Exception as fault:
            self._failed("after_reset", fault)

    def evicted(self, block_ids: Iterable[int]) -> None:
        """Blocks are cached no more, wherever they stand: a connector failed to load them."""
        if not self.engaged:
            return
        try:
            now = self._clock()
            self._heed(now)
            assert self.trunk is not None
            self.trunk.uncached(block_ids, now)
            self._heed(now)
        except Exception as fault:
            self._failed("evicted", fault)

    def drain(self) -> None:
        """Messages of the control channel, as many as one step takes."""
        ends = self._clock() + DRAIN_WITHIN_S
        for _ in range(DRAIN_MOST):
            try:
                got = self.channel.drain(1)
            except Exception as fault:
                self._failed("channel", fault)
                return
            if not got:
                return
            row = self._take_up(got[0])
            try:
                self.channel.answer(got[0], row)
            except Exception as fault:
                self._failed("channel", fault)
            if self._clock() >= ends:
                return

    def status(self) -> dict[str, Any]:
        """What `kvp doctor` shows. Reads only; called from another thread, too."""
        ledger, trunk = self.ledger, self.trunk
        return {
            "active": self.engaged,
            "off": self.off,
            "claims": 0 if ledger is None else sum(len(h.lines()) for h in list(ledger.holders.values())),
            "protected": 0 if trunk is None else trunk.protected_blocks,
            "blocks": self.pool.num_gpu_blocks - 1,
            "block_size": self.holdings.unit,
            "groups": 1 + len(self.holdings.others),
            "budget": self._budget,
            "counters": dict(self.counters),
        }

    # --- what messages need: `channel.messages.Engine` --------------------------------------------------------------

    def named(self, names: Sequence[int | str]) -> Sequence[Any]:
        """Blocks by the names that the engine's events give them, up to the first that is not cached."""
        return self.holdings.named(names)

    def ranks_of(self, hashes: Sequence[Any]) -> list[int]:
        """The strengths of a prompt's leading blocks, up to the first that is not cached."""
        assert self.trunk is not None
        keys, _ = self.holdings.find(hashes)
        return [self.trunk.rank_of(key) for key in keys]

    def requests(self) -> Iterable[Running]:
        """Those that run."""
        return self.running.values()

    def hashes_of(self, running: Running) -> Sequence[Any]:
        """Those of a running request's full blocks so far."""
        return self.holdings.hashes(running.request)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _came(self, request: Any) -> None:
        carried = carried_by(request)
        if carried is None and not self.engaged:
            return
        now = self._clock()
        told = None
        if carried is not None:
            try:
                told = read(carried, request.request_id, request.num_prompt_tokens, self.holdings.unit, now)
                lay_out(told.request)
                told = self.awaited.came(told, now)
                self.counters["told"] += 1
            except InputFault as fault:
                self.counters["rejected"] += 1
                told = None
                log.warning(
                    "kvpolicy: request %s: %s; it is served as one that says nothing", request.request_id, fault
                )
        if not self.engaged:
            if told is None:
                return
            self.engage(now)
        if request.request_id not in self.running:
            self._arrive(request, told or self._untold(request), now)

    def engage(self, now: float) -> None:
        """Put our queue in place of vLLM's, and claim for what runs."""
        self.queue = queue = RankedQueue(self.pool.blocks, self.pool.free_block_queue.get_all_free_blocks())
        self.trunk = trunk = Trunk(queue, self.holdings.capacity, self.holdings.find)
        self.ledger = trunk.listener = Ledger(trunk, budget=self._budget)
        self._table = self.pool.cached_block_hash_to_block
        queue.rescues = self._rescued
        self.pool.free_block_queue = queue
        self._bind(queue)
        self.engaged = True
        self.counters["engaged"] += 1
        log.info("kvpolicy: the first directive has come; blocks leave by rank from now on")
        for request in list(self._scheduler.running):
            self._arrive(request, self._untold(request), now)
            self._place(self.running[request.request_id], request, 0, now)
        self._heed(now)

    def _bind(self, queue: RankedQueue) -> None:
        """Put ours before two of the pool's own methods, on this pool alone."""
        evict: Any = self.pool.evict_blocks

        def evict_and_tell(block_ids: set[int]) -> None:
            evict(block_ids)
            self.evicted(block_ids)

        self.pool.evict_blocks = evict_and_tell
        stock: Any = getattr(self.pool, "touch", None)
        if getattr(stock, "__qualname__", "") == "BlockPool.touch" and self.pool.metrics_collector is None:
            self.pool.touch = queue.touching(stock)

    def _untold(self, request: Any) -> Told:
        session = getattr(request, "session_id", None)
        owner = Owner(session=str(session)) if session else Owner()
        return Told(Request(request.request_id, owner, request.num_prompt_tokens, self.holdings.unit), {}, {})

    def _arrive(self, request: Any, told: Told, now: float) -> None:
        assert self.ledger is not None
        self._heed(now)
        hashes = self.holdings.hashes(request)
        layout = lay_out(told.request)
        arrival = self.ledger.arrive(told.request, layout, hashes, now, open_calls=told.waits)
        self.running[request.request_id] = Running(request, told, arrival)
        self.ledger.heed(now)

    def _after_schedule(self, scheduled: dict[str, int]) -> None:
        running, requests = self.running, self._scheduler.requests
        now = self._clock()
        self._heed(now)
        changed = False
        for request_id, count in scheduled.items():
            record = running.get(request_id)
            if record is not None and record.lease is not None and request_id not in self._filling:
                continue
            request = requests.get(request_id)
            if request is None:
                continue
            if record is None:
                self._arrive(request, self._untold(request), now)
                record = running[request_id]
            if record.lease is None:
                self._place(record, request, request.num_computed_tokens - count, now)
            else:
                self._grow(record, now)
            changed = True
        if changed:
            self._heed(now)

    def _place(self, record: Running, request: Any, cached_tokens: int, now: float) -> None:
        """Claims for a request that has been given blocks; after a preemption, the same claims on the new ones."""
        assert self.ledger is not None
        assert self.trunk is not None
        record.lease = lease = self.trunk.lease(now)
        keys, sides = self.holdings.cached(request.request_id, 0)
        self.trunk.enter(lease, keys, sides, now, hits=max(0, cached_tokens) // self.holdings.unit)
        hashes = self.holdings.hashes(request)
        self.ledger.heed(now)
        if record.line is None:
            holder = self.ledger.holder(record.told.request.owner)
            if holder is not None:
                self.ledger.touched(holder, now)
            line = self.ledger.place(record.arrival, hashes, record.told.directives.values(), lease, now)
            line.outline = record.told.names
            record.line, record.made = line, line.claims
            self.counters["placed"] += 1
        elif record.leads is not None:
            for claim in record.made:
                claim.ended = False  # used again
            self.ledger.grow(record.leads, hashes, lease, now)
        if lease.length < record.told.request.tokens // self.holdings.unit:
            self._filling[request.request_id] = record

    def _grow(self, record: Running, now: float) -> None:
        """More of a running request is cached."""
        assert self.ledger is not None
        assert self.trunk is not None
        assert record.lease is not None
        keys, sides = self.holdings.cached(record.request.request_id, record.lease.length)
        if keys:
            self.trunk.enter(record.lease, keys, sides, now)
            if record.leads is not None:
                self.ledger.grow(record.leads, self.holdings.hashes(record.request), record.lease, now)
        if record.lease.length >= record.told.request.tokens // self.holdings.unit:
            self._filling.pop(record.request.request_id, None)

    def _leaving(self, request: Any) -> None:
        """Claims come first, so that its blocks enter the queue at their ranks. What the answer filled is claimed here
        at once: nothing that a request holds can leave before."""
        assert self.ledger is not None
        assert self.trunk is not None
        now = self._clock()
        record = self.running.get(request.request_id)
        finished = request.is_finished()
        if record is None:
            return
        self._heed(now)
        if record.lease is not None and not record.lease.released:
            self._grow(record, now)
            self.trunk.release(record.lease, now)
        self._filling.pop(request.request_id, None)
        line = record.line
        if not finished:
            record.lease = None
            if line is not None:
                self.ledger.settle(line, now)
        else:
            del self.running[request.request_id]
            if record.told.follows:
                self.awaited.ended(record.told, self.holdings.hashes(request))
            if line is None:
                self.ledger.leave(record.arrival)
            elif request.status.name == "FINISHED_ABORTED":
                self.ledger.cancel(line, record.made, now)
            else:
                self.ledger.finish(line, record.made, now)
                self.ledger.settle(line, now)
        self._heed(now)

    def _advance(self, now: float) -> None:
        assert self.ledger is not None
        assert self.trunk is not None
        self._heed(now)
        if self.pool.cached_block_hash_to_block is not self._table:
            self._look_for_reset(now)
        self.ledger.advance(now)
        self.trunk.lapse(now)

    def _look_for_reset(self, now: float) -> None:
        if self.pool.cached_block_hash_to_block is self._table or self.trunk is None:
            return
        self._table = self.pool.cached_block_hash_to_block
        self.counters["resets"] += 1
        self.trunk.take_up()
        self.trunk.now = now
        self.trunk.forget()
        self._heed(now)

    def _heed(self, now: float) -> None:
        assert self.ledger is not None
        assert self.trunk is not None
        self.trunk.take_up()
        self.trunk.tell_emptied()
        self.ledger.heed(now)

    def _take_up(self, message: dict[str, Any]) -> dict[str, Any]:
        if self.off is not None:
            return {"status": "ignored", "requested": 0, "granted": 0, "reason": self.off}
        try:
            self.counters["messages"] += 1
            now = self._clock()
            if not self.engaged:
                if message.get("do") == "plan":
                    self.awaited.early(message, now)
                if message.get("do") != "claim":
                    return messages.unengaged(message)
                self.engage(now)
            self._advance(now)
            row = messages.apply(self, message, now)
            self._heed(now)
            return row
        except InputFault as fault:
            return {"status": "rejected", "requested": 0, "granted": 0, "reason": str(fault)}
        except Exception as fault:
            self._failed("message", fault)
            return {"status": "ignored", "requested": 0, "granted": 0, "reason": "a fault of ours; all claims ended"}

    # --- when something of ours breaks ------------------------------------------------------------------------------

    def _failed(self, where: str, fault: BaseException) -> None:
        """Put the stock queue back and start anew."""
        try:
            queue = self.queue
            ids = None if queue is None or not self.engaged else queue.members()
        except Exception:
            ids = None
        self._forget(where, fault, ids)

    def _rescued(self, ids: list[int], fault: BaseException) -> Any:
        """The queue itself broke in a call of the block pool."""
        return self._forget("queue", fault, ids)

    def _forget(self, where: str, fault: BaseException, ids: Sequence[int] | None) -> Any:
        self.counters["failures"] += 1
        self.counters[f"failures.{where}"] += 1
        was_engaged, self.engaged = self.engaged, False
        for name in _BOUND:
            self.pool.__dict__.pop(name, None)
        stock: Any = self.pool.free_block_queue
        if was_engaged:
            from vllm.v1.core.kv_cache_utils import FreeKVCacheBlockQueue

            if ids is None:  # the surest there is between two calls of the pool
                ids = [block.block_id for block in self.pool.blocks if block.ref_cnt == 0 and not block.is_null]
            self.pool.free_block_queue = stock = FreeKVCacheBlockQueue([self.pool.blocks[i] for i in ids])
        self.queue = self.trunk = self.ledger = None
        self.running.clear()
        self._filling.clear()
        self.awaited.forget()
        if self.counters["failures"] >= MOST_FAULTS and self.off is None:
            self.off = f"{MOST_FAULTS} faults of ours; the last: {type(fault).__name__} in {where}"
        try:
            log.warning(
                "kvpolicy: %s broke (%r); vLLM goes on with its own queue%s",
                where,
                fault,
                "" if self.off is None else ", for good",
                exc_info=fault if self.counters["failures"] == 1 else None,
            )
        except Exception:
            self.counters["failures.log"] += 1
        return stock
