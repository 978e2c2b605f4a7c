"""Requests that end in the instant in which they come: what a replay is made of.

`request` and `finish` in one. Nobody can see what such a request claims before its end, so its claims are made once, by
what the policy says then; where something else would come of that, it starts and ends like any other.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from kvpolicy.claims.arrival import Arrival
from kvpolicy.plan import Outline, say
from kvpolicy.request import Request
from kvpolicy.steering.ending import Ending, tells_what_follows
from kvpolicy.steering.outcome import Outcome, Running
from kvpolicy.workflow.phases import RUNNING
from kvpolicy.workflow.state import ToolCall


class Passing(Ending):
    """Requests without a duration."""

    def pass_by(
        self,
        request: Request,
        hashes: Sequence[Hashable],
        now: float,
        *,
        tool_calls: Sequence[ToolCall] = (),
        finished: bool | None = None,
        output_tokens: int | None = None,
    ) -> Outcome:
        """A request comes, and its answer is done: arguments as of `request` and `finish`. Where it claims but once,
        the outcome has no plan and no hints."""

        def ends() -> None:
            self.finish(request.id, now, tool_calls=tool_calls, finished=finished, output_tokens=output_tokens)

        policy = self.policy
        if policy is None or request.key is not None or not self._needs.fleeting or self._mates_matter:
            outcome = self.request(request, hashes, now)
            ends()
            return outcome
        self.advance(now)
        self.counters["requests"] += 1
        given = list(hashes)
        arrival = self._arrive(request, given, now)
        lease = self.pool.acquire(given, now)
        classified = tells_what_follows(tool_calls, finished)
        if arrival is not None and self._passes(arrival, classified):
            outcome = Outcome(lease.hits, lease.stored, lease.evicted)
            answered = False
            try:
                self._touch(request, lease, now)
                self.pool.release(lease, now)
                drawn = Outline(policy, request, self.state, arrival.layout)
                before = None if classified else say(policy, drawn, self.state, now, self.pace.start())
                answered = True  # an answer that is told twice makes two calls of one
                self.state.answer(request, now, tool_calls=tool_calls, finished=finished, output_tokens=output_tokens)
                said = say(policy, drawn, self.state, now, self.pace.start()) if before is None else before
                self.counters["plans"] += 1
                line = self.ledger.pass_by(arrival, said.wishes, lease, now, self._reread(said), classified=classified)
                self._follow(line, said, drawn)
                drawn.rest()
                self.ledger.heed(now)
                return outcome
            except Exception as fault:
                self._unplanned(arrival, fault)
                if answered:
                    outcome.failed = True
                    return outcome
                arrival = None
        outcome = self._start(Running(request, lease, given, {request.id}, len(given)), arrival, now)
        ends()
        return outcome

    def _passes(self, arrival: Arrival, classified: bool) -> bool:
        """Whether nothing that this request would claim until its end comes to count."""
        if not classified and self._needs.timed:
            return False  # plans of an owner who has gone idle are read again
        return self.state.phase(arrival.request.owner) == RUNNING and self.ledger.passes(arrival)
