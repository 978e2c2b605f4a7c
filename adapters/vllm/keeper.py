"""Our side of a vLLM scheduler: idle, following ranks from the first directive on, off where we broke too often.

`steered` calls it around the scheduler's own steps, in the engine's thread. Until a directive comes it does nothing,
and vLLM's own queue is in place; then `takeover` exchanges that, and `claims` says what is kept.

INVARIANT: no exception of ours reaches a step. One that is raised anywhere here puts the stock queue back, in the
order of the moment, forgets all claims and is counted; after `MOST_FAULTS` the adapter stays off.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec

from kvpolicy.adapters.vllm.carried import carried_by
from kvpolicy.adapters.vllm.claims import Claims
from kvpolicy.adapters.vllm.holdings import Holdings
from kvpolicy.adapters.vllm.takeover import Takeover
from kvpolicy.channel import messages
from kvpolicy.channel.payload import Told
from kvpolicy.channel.replans import Awaited
from kvpolicy.claims.ledger import BUDGET
from kvpolicy.faults import InputFault

log = logging.getLogger("vllm.kvpolicy")

MOST_FAULTS = 8
DRAIN_MOST, DRAIN_WITHIN_S = 64, 0.002  # messages taken up in one step

P = ParamSpec("P")
Step = Callable[Concatenate["Keeper", P], None]


def _never_raises(step: Step[P]) -> Step[P]:
    @wraps(step)
    def guarded(keeper: Keeper, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            step(keeper, *args, **kwargs)
        except Exception as fault:
            keeper._failed(step.__name__, fault)

    return guarded


class Keeper:
    """scheduler: a built vLLM scheduler. clock: seconds, never going back. budget: the share of blocks that may be
    protected. claims: None until a directive has come, and after a fault until the next one. off: why nothing is done
    any more, or None.

    Raises ValueError where the scheduler caches nothing by prefix."""

    def __init__(self, scheduler: Any, clock: Callable[[], float], *, budget: float = BUDGET) -> None:
        self._scheduler = scheduler
        self._clock = clock
        self._budget = budget
        self.holdings = Holdings(scheduler)
        self.counters: Counter[str] = Counter()
        self.channel: Any = None
        self.off: str | None = None
        self.claims: Claims | None = None
        self._takeover: Takeover | None = None
        self._awaited = Awaited()

    # --- what the scheduler calls: none of these raises -------------------------------------------------------------

    @_never_raises
    def came(self, request: Any) -> None:
        """A request was added."""
        if self.off is not None:
            return
        carried = carried_by(request)
        if carried is None and self.claims is None:
            return
        now = self._clock()
        told = None if carried is None else self._read(carried, request, now)
        if self.claims is None and told is None:
            return
        self.engage(now).came(request, told, now)

    @_never_raises
    def before_step(self) -> None:
        """A step begins: messages are taken up, and what has lapsed by now lapses."""
        self.drain()
        if self.claims is not None:
            self.claims.advance(self._clock())

    @_never_raises
    def after_schedule(self, output: Any) -> None:
        """The step's blocks are given out."""
        if self.claims is not None:
            self.claims.scheduled(output.num_scheduled_tokens, self._clock())

    @_never_raises
    def leaving(self, request: Any) -> None:
        """A request's blocks are freed next, as it is done, aborted or preempted."""
        if self.claims is not None:
            self.claims.leaving(request, self._clock())

    @_never_raises
    def after_reset(self) -> None:
        """The prefix cache was reset, or that was tried."""
        if self.claims is not None:
            self.claims.look_for_reset(self._clock())

    @_never_raises
    def evicted(self, block_ids: Iterable[int]) -> None:
        """Blocks are cached no more, wherever they stand: a connector failed to load them."""
        if self.claims is not None:
            self.claims.uncached(block_ids, self._clock())

    @_never_raises
    def drain(self) -> None:
        """Messages of the control channel, as many as one step takes."""
        channel = self.channel
        if channel is None or not channel.pending:
            return
        ends = self._clock() + DRAIN_WITHIN_S
        for _ in range(DRAIN_MOST):
            got = channel.drain(1)
            if not got:
                return
            channel.answer(got[0], self.take_up(got[0]))
            if self._clock() >= ends:
                return

    def take_up(self, message: dict[str, Any]) -> dict[str, Any]:
        """Do what a message of the channel says; the answer to it. Does not raise."""
        if self.off is not None:
            return messages.ignored(self.off)
        try:
            self.counters["messages"] += 1
            now = self._clock()
            row = None if self.claims is not None else messages.unengaged(self._awaited, message, now)
            return self.engage(now).take_up(message, now) if row is None else row
        except InputFault as fault:
            return messages.rejected(fault)
        except Exception as fault:
            self._failed("message", fault)
            return messages.ignored("a fault of ours; all claims ended")

    def status(self) -> dict[str, Any]:
        """What `kvp doctor` shows. Reads only; called from another thread, too."""
        claims = self.claims
        return {
            "active": claims is not None,
            "off": self.off,
            "claims": 0 if claims is None else claims.ledger.lines,
            "protected": 0 if claims is None else claims.trunk.protected_blocks,
            "blocks": self.blocks,
            "block_size": self.holdings.unit,
            "groups": 1 + len(self.holdings.others),
            "budget": self._budget,
            "counters": dict(self.counters),
        }

    @property
    def blocks(self) -> int:
        """Of the pool, without its null block."""
        return int(self.holdings.pool.num_gpu_blocks) - 1

    # --- inside -----------------------------------------------------------------------------------------------------

    def engage(self, now: float) -> Claims:
        """What is claimed by now; at the first directive our queue is put in place of vLLM's, and what runs is
        claimed for."""
        if self.claims is not None:
            return self.claims
        takeover = Takeover(self.holdings.pool)
        ranked = takeover.queue.order
        claims = Claims(self._scheduler, self.holdings, ranked, self._budget, self._awaited, self.counters)
        self._takeover, self.claims = takeover, claims
        takeover.begin(self.evicted, self._rescued)
        self.counters["engaged"] += 1
        log.info("kvpolicy: the first directive has come; blocks leave by rank from now on")
        claims.begin(now)
        return claims

    def _read(self, carried: Any, request: Any, now: float) -> Told | None:
        try:
            told = self._awaited.read(carried, request.request_id, request.num_prompt_tokens, self.holdings.unit, now)
        except InputFault as fault:
            self.counters["rejected"] += 1
            log.warning("kvpolicy: request %s: %s; it is served as one that says nothing", request.request_id, fault)
            return None
        self.counters["told"] += 1
        return told

    # --- when something of ours breaks ------------------------------------------------------------------------------

    def _failed(self, where: str, fault: BaseException) -> None:
        """Put the stock queue back and start anew."""
        try:
            ids = None if self._takeover is None else self._takeover.queue.members()
        except Exception:
            ids = None
        self._forget(where, fault, ids)

    def _rescued(self, ids: list[int], fault: BaseException) -> Any:
        """The queue itself broke in a call of the block pool; it asks for the one that goes on."""
        return self._forget("queue", fault, ids)

    def _forget(self, where: str, fault: BaseException, ids: Sequence[int] | None) -> Any:
        self.counters["failures"] += 1
        self.counters[f"failures.{where}"] += 1
        takeover, self._takeover, self.claims = self._takeover, None, None
        stock = self.holdings.pool.free_block_queue if takeover is None else takeover.end(ids)
        self._awaited.forget()
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
