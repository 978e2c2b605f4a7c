"""Ends of requests: done, withdrawn, or preempted for a while; and what an answer turns out to be made of.

Blocks are let go first, as the engine does; faults in what follows cost hints and nothing else (law 10).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from kvpolicy.blocks import Layout
from kvpolicy.plan import Outline
from kvpolicy.pool import Lease
from kvpolicy.request import Owner, Request, Span
from kvpolicy.steering.outcome import Running
from kvpolicy.steering.relabel import with_parts
from kvpolicy.steering.requests import Requests
from kvpolicy.workflow.state import ToolCall


def tells_what_follows(tool_calls: Sequence[ToolCall], finished: bool | None) -> bool:
    """Whether an answer is classified as it ends. One that was cut short is no end of a turn."""
    return bool(tool_calls) or bool(finished)


class Ending(Requests):
    """What becomes of running requests."""

    def finish(
        self,
        request_id: str,
        now: float,
        *,
        tool_calls: Sequence[ToolCall] = (),
        finished: bool | None = None,
        parts: Sequence[Span] = (),
        output_tokens: int | None = None,
    ) -> bool:
        """A request's answer is done. tool_calls: what it asked for; finished True: a human is next; neither: it is
        not known yet. parts: what the answer is made of, as spans in the place of its output. output_tokens: its
        length, where known. False for a request that does not run (a late or repeated end has no effect). Raises
        InputFault for parts that cannot be."""
        self.advance(now)
        running = self.running.get(request_id)
        if running is not None and parts:
            self._relabel(running, *with_parts(running.request, parts, len(running.hashes)), now)
        running = self._leave(request_id, all_riders=True)
        if running is None:
            return False
        self.pool.release(running.lease, now)
        if self.policy is None:
            return True
        try:
            classified = tells_what_follows(tool_calls, finished)
            line = running.line
            if line is not None:
                self.ledger.finish(line, running.made, now, classified)
            self.state.answer(
                running.request, now, tool_calls=tool_calls, finished=finished, output_tokens=output_tokens
            )
            if classified:
                self._came(running.request.owner, "tool_call" if tool_calls else "turn_end", now)
            if self._needs.events and (classified or self._goes_idle(running.request.owner)):
                self._replan_owner(running.request.owner, line, now)
            elif line is not None:
                self.ledger.settle(line, now)
            self._replan_run(running.request.owner, now)
            self.ledger.heed(now)
            if line is not None and not line.running and isinstance(line.outline, Outline):
                line.outline.rest()
        except Exception:
            self.counters["failures"] += 1
        self._replan_pressed(now)
        return True

    def preempt(self, request_id: str, now: float) -> int | None:
        """The engine takes a running request's blocks back; it will go on later. Its claims stand, but hold nothing:
        their clocks run. Returns the blocks released; None for a request that does not run, or is preempted."""
        self.advance(now)
        running = self.running.get(request_id)
        if running is None or running.lease.released:
            return None
        self.pool.release(running.lease, now)
        try:
            if running.line is not None:
                self.ledger.settle(running.line, now)
        except Exception:
            self.counters["failures"] += 1
        self._heed(now)
        return running.lease.length

    def resume(self, request_id: str, now: float, *, blocks: int | None = None) -> Lease | None:
        """A preempted request goes on: what is left of its blocks is used again (`hits` of the new lease), the rest
        computed anew: up to `blocks` at once (None: as far as it was), `progress` brings what follows. None for a
        request that is not preempted."""
        self.advance(now)
        running = self.running.get(request_id)
        if running is None or not running.lease.released:
            return None
        if blocks is not None:
            running.computed = min(blocks, len(running.hashes))
        running.lease = lease = self.pool.acquire(running.hashes[: running.computed], now)
        try:
            if running.leads is not None:
                self.ledger.resume(running.leads, running.made, running.hashes, lease, now)
        except Exception:
            self.counters["failures"] += 1
        self._heed(now)
        return lease

    def cancel(self, request_id: str, now: float) -> bool:
        """A request is withdrawn; with a grace, so are its claims. A retry that rides on it lives on."""
        self.advance(now)
        running = self._leave(request_id, all_riders=False)
        if running is None:
            return False
        if running.riders:
            return True
        self.pool.release(running.lease, now)
        if self.policy is None:
            return True
        try:
            self.state.cancel(running.request.id, now)
            if running.line is not None:
                self.ledger.cancel(running.line, running.made, now)
            if self._goes_idle(running.request.owner):
                self._replan_owner(running.request.owner, running.line, now)
            self.ledger.heed(now)
        except Exception:
            self.counters["failures"] += 1
        return True

    # --- inside -------------------------------------------------------------------------------------------

    def _leave(self, request_id: str, *, all_riders: bool) -> Running | None:
        running = self.running.pop(request_id, None)
        if running is None:
            return None
        running.riders.discard(request_id)
        if all_riders:
            for rider in running.riders:
                self.running.pop(rider, None)
            running.riders.clear()
        key = (running.request.owner, running.request.key)
        if running.request.key is not None:
            if running.riders:
                self._keys[key] = next(iter(running.riders))
            else:
                self._keys.pop(key, None)
        return running

    def _goes_idle(self, owner: Owner) -> bool:
        """Whether time changes plans that stood still while a request of the owner ran (see `policy.steps`)."""
        return self._needs.timed and self.state.idle_since(owner) is not None

    def _relabel(self, running: Running, request: Request, layout: Layout, now: float) -> None:
        """A running request has other spans from now on, with the same blocks."""
        line, before = running.line, running.request
        running.request = request
        if line is None or line.request is not before:
            return  # another request has taken the line over, and says what its prompt is made of
        try:
            made, drawn = self._plan(request, layout, now)
            self.ledger.relabel(line, request, layout, running.hashes, made.directives, now)
            running.plan, running.made, line.outline = made, line.claims, drawn
            line.valid_until = inf if made.valid_until is None else made.valid_until
            line.replan = self._reread(made) or inf
        except Exception:
            self.counters["failures"] += 1
