"""Requests: they come and grow, and claims come with them.

A step of `steering`: blocks first, as the engine has them; then the plan and its claims, whose faults cost the hints
and nothing else (law 10).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from math import inf

from kvpolicy.blocks import lay_out
from kvpolicy.claims.answers import IGNORED, Answer, answers
from kvpolicy.claims.arrival import Arrival
from kvpolicy.claims.ledger import BUDGET
from kvpolicy.claims.line import Line
from kvpolicy.directive import Plan
from kvpolicy.plan import Outline, Said
from kvpolicy.policy.policy import Policy
from kvpolicy.pool import Lease, Pool
from kvpolicy.request import Request
from kvpolicy.steering.outcome import Outcome, Running
from kvpolicy.steering.pace import TimeSpent
from kvpolicy.steering.replanning import Replanning
from kvpolicy.workflow.state import RunState

# The event by which a request ends its owner's pause.
RESUMES: Mapping[str, str] = {"tool_pause": "tool_result", "human_pause": "turn_start"}


def found_by(request: Request, tokens: int) -> list[str]:
    """The kinds of spans of a request of whose prompt so many tokens were found cached."""
    return sorted({span.kind for span in request.spans if span.end is not None and span.end <= tokens})


class Requests(Replanning):
    """running: requests by id, a retry's id beside that of the request it rides on."""

    def __init__(
        self, policy: Policy | None, pool: Pool, *, state: RunState | None = None, budget: float = BUDGET
    ) -> None:
        super().__init__(policy, pool, state=state, budget=budget)
        self.running: dict[str, Running] = {}
        self._keys: dict[Hashable, str] = {}

    def request(
        self,
        request: Request,
        hashes: Sequence[Hashable],
        now: float,
        *,
        blocks: int | None = None,
    ) -> Outcome:
        """A request starts. hashes: those of its blocks (prefix-chained), as the engine names them. blocks: how many of
        them are computed by now (None: all); `progress` brings the rest."""
        self.advance(now)
        joined = self._join(request)
        if joined is not None:
            return joined
        self.counters["requests"] += 1
        given = list(hashes)
        first = given if blocks is None else given[:blocks]
        arrival = None if self.policy is None else self._arrive(request, given, now)
        lease = self.pool.acquire(first, now)
        return self._start(Running(request, lease, given, {request.id}, len(first)), arrival, now)

    def progress(
        self, request_id: str, now: float, *, blocks: int | None = None, hashes: Sequence[Hashable] = ()
    ) -> list[Hashable]:
        """More of a running request is computed: its blocks up to `blocks`, and new ones behind all it had (the
        answer's). Returns the hashes stored."""
        self.advance(now)
        running = self.running.get(request_id)
        if running is None or running.lease.released:
            return []
        running.hashes += hashes
        upto = len(running.hashes) if blocks is None else min(blocks, len(running.hashes))
        known = len(running.lease.stored)
        if upto > running.computed:
            self.pool.extend(running.lease, running.hashes[running.computed : upto], now)
            running.computed = upto
        if running.leads is not None:
            try:
                self.ledger.grow(running.leads, running.hashes, running.lease, now)
                self.ledger.heed(now)
            except Exception:
                self.counters["failures"] += 1
        self._replan_pressed(now)
        return running.lease.stored[known:]

    # --- inside -------------------------------------------------------------------------------------------

    def _start(self, running: Running, arrival: Arrival | None, now: float) -> Outcome:
        """A request runs on the blocks that it was given. arrival: None where there is no policy, or that broke."""
        self.running[running.request.id] = running
        lease = running.lease
        outcome = Outcome(lease.hits, lease.stored, lease.evicted)
        if self.policy is None:
            return outcome
        failed = arrival is None or self._place(running, arrival, now)
        outcome.plan, outcome.failed = running.plan, failed
        self._heed(now)
        outcome._answer = lambda: self._answers(running)
        return outcome

    def _join(self, request: Request) -> Outcome | None:
        """A retry with the key of a request that runs rides on that one."""
        if request.key is None:
            return None
        key = (request.owner, request.key)
        running = self.running.get(self._keys.get(key, ""))
        if running is None:
            self._keys[key] = request.id
            return None
        running.riders.add(request.id)
        self.running[request.id] = running
        return Outcome(running.lease.hits, [], [], running.plan, joined=True, _answer=lambda: self._answers(running))

    def _arrive(self, request: Request, hashes: list[Hashable], now: float) -> Arrival | None:
        """What the request says of its owner's past and state, before its blocks are looked up. None: that broke."""
        try:
            owner = request.owner
            phase = self.state.phase(owner)
            waits = self.state.waits_of(owner) if phase == "tool_pause" else ()
            arrival = self.ledger.arrive(request, lay_out(request), hashes, now, waits=waits)
            self.state.arrive(request, now, () if arrival.aside else None)
            if phase in RESUMES and self.state.phase(owner) != phase:
                self._came(owner, RESUMES[phase], now)
        except Exception:
            self.counters["failures"] += 1
            return None
        return arrival

    def _place(self, running: Running, arrival: Arrival, now: float) -> bool:
        """Plan the request and put its claims. True when that broke."""
        request = running.request
        try:
            self._touch(request, running.lease, now)
            made, drawn = self._plan(request, arrival.layout, now)
            self.counters["plans"] += 1
            running.plan = made
            running.line = line = self.ledger.place(
                arrival,
                running.hashes,
                made.directives,
                running.lease,
                now,
                self._reread(made),
            )
            running.made = line.claims
            self._follow(line, made, drawn)
            if self._needs.events:
                self._replan_owner(request.owner, None, now, besides=line)
            self._replan_run(request.owner, now)
        except Exception as fault:
            self._unplanned(arrival, fault)
            return True
        return False

    def _touch(self, request: Request, lease: Lease, now: float) -> None:
        """The request has touched its blocks: graces of its owner end, and what it found may have been others'."""
        self.ledger.heed(now)
        self.state.touched(request.id, now)
        holder = self.ledger.holder(request.owner)
        if holder is not None:
            self.ledger.touched(holder, now)
        if self._needs.hits:
            self._note_hits(request, lease.hits)

    @staticmethod
    def _follow(line: Line, made: Plan | Said, drawn: Outline | None) -> None:
        """A line's claims are those of this plan from now on."""
        line.outline = drawn
        line.valid_until = inf if made.valid_until is None else made.valid_until

    def _unplanned(self, arrival: Arrival, fault: Exception) -> None:
        """Planning broke, or took too long."""
        self.ledger.leave(arrival)
        self.counters["overdue" if isinstance(fault, TimeSpent) else "failures"] += 1

    def _note_hits(self, request: Request, hits: int) -> None:
        """What an owner finds cached at its first request, others have left there; those of another run or session
        count (of branches of one agent in one session the first)."""
        owner = request.owner
        holder = self.ledger.holder(owner)
        if holder is not None and (holder.nameless or holder.chains or holder.manual):
            return
        if any(mate.agent == owner.agent and mate != owner for mate in self.state.run_mates(owner)):
            return
        for kind in found_by(request, hits * request.block_size):
            self.state.record_hit(owner, kind)

    def _answers(self, running: Running) -> list[Answer]:
        if running.line is None:
            return [Answer(IGNORED, reason="planning failed; the request is served as without a policy")]
        return answers(running.line, self.now)
