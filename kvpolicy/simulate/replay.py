"""The replay loop: every call of a trace through the plan, claims and pool code that a service uses.

Plain replay: a request is instantaneous, it ends at the moment it arrives, no output is stored. A policy sees a call's
answer and the events after it only once the request is over, so nothing that lies later in the trace can change a
decision. Reads calls, drives `steering`, gives hits to the tally.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter

from kvpolicy.policy.policy import Policy
from kvpolicy.pool import Pool
from kvpolicy.simulate.tally import Tally
from kvpolicy.simulate.trace import END_TURN, Call
from kvpolicy.steering import Steering
from kvpolicy.workflow.events import Event
from kvpolicy.workflow.graph import Graph


class Replay:
    """One policy (None: the engine's own order) on one pool of `capacity` blocks, and of `cpu_blocks` below it.
    workflow: the graph of the trace's runs. Raises InputFault for a bad graph."""

    def __init__(
        self,
        policy: Policy | None,
        capacity: int,
        block_size: int,
        tally: Tally,
        workflow: Mapping[str, object] | None = None,
        cpu_blocks: int = 0,
    ) -> None:
        self.steering = Steering(policy, Pool(capacity, block_size=block_size, cpu_blocks=cpu_blocks))
        if workflow is not None:
            self.steering.describe(Graph.sound(workflow))
        self.tally = tally

    def feed(self, call: Call) -> None:
        """One call: the events before it, the request, its answer, the events after it."""
        steering, request, now = self.steering, call.request, call.at
        began = perf_counter()
        for row in call.before:
            event = _event(row, now)
            steering.event(event, min(event.at, now))
        answer = call.answer
        # INVARIANT: nothing of `answer` or `after` is known before the request has its blocks.
        outcome = steering.pass_by(
            request,
            call.hashes,
            now,
            tool_calls=[(tool, None) for tool in answer.tool_calls],
            finished=answer.stop == END_TURN or None,
            output_tokens=answer.output_tokens or None,
        )
        for row in call.after:
            steering.event(_event(row, now), now)
        tally = self.tally
        tally.wall_s += perf_counter() - began
        tally.evictions += len(outcome.evicted)
        tally.add(call, outcome.cached)

    def end(self) -> Tally:
        """The counts; the trace is over. A fault of ours is served around, so it has to be told here."""
        self.tally.failures = self.steering.counters["failures"]
        return self.tally


def _event(row: object, now: float) -> Event:
    assert isinstance(row, dict)
    attributes = {key: value for key, value in row.items() if key not in ("at", "event")}
    return Event(float(row.get("at", now)), str(row["event"]), attributes)
