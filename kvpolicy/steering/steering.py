"""Steering: requests, their ends and events come in; the pool's blocks are ranked by what the policy wants.

The one way by which simulate, replay and the embedded engine use a policy: state of runs -> plan -> claims -> ranks.
Without a policy nothing of that runs, and the pool is the engine alone (law 5). Whatever breaks on this side, the
request is served as if there were no policy, and counted (law 10). Times are seconds on the caller's clock.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from math import inf
from typing import Any, cast

from kvpolicy.blocks import Layout, lay_out
from kvpolicy.claims.answers import ACCEPTED, IGNORED, REJECTED, UNKNOWN, Answer, answers
from kvpolicy.claims.claim import Claim
from kvpolicy.claims.ledger import BUDGET, Arrival, Ledger
from kvpolicy.claims.line import Line
from kvpolicy.claims.owners import Holder
from kvpolicy.claims.ranks import Ranks, Tiers
from kvpolicy.claims.wish import wishes_of
from kvpolicy.directive import Plan
from kvpolicy.plan import Outline, outline, plan
from kvpolicy.policy.model import Subject
from kvpolicy.policy.policy import Policy
from kvpolicy.pool import Lease, Pool
from kvpolicy.request import Owner, Request, Span
from kvpolicy.steering import calls, ladder, show
from kvpolicy.steering.limits import Sizes, attributes_of, limits, shares, whole
from kvpolicy.steering.needs import needs
from kvpolicy.steering.outcome import Outcome, Running
from kvpolicy.steering.pressure import Pressure
from kvpolicy.steering.relabel import with_parts
from kvpolicy.workflow.events import Event
from kvpolicy.workflow.gauges import CostModel
from kvpolicy.workflow.graph import Graph
from kvpolicy.workflow.state import RunState, ToolCall

# Which claims an event ends, by their `for`. `agent` is a name, so no event ends its claims.
ENDS: Mapping[str, frozenset[str]] = {
    "agent_end": frozenset({"request", "branch", "session"}),
    "session_end": frozenset({"request", "branch", "session"}),
    "workflow_end": frozenset({"request", "branch", "session", "run"}),
    "branch_pruned": frozenset({"request", "branch"}),
}


# The event by which a request ends its owner's pause.
RESUMES: Mapping[str, str] = {"tool_pause": "tool_result", "human_pause": "turn_start"}

CROWD = 32  # prompts of one nameless owner
REAP_S = 3600.0  # how often owners of whom nothing was heard for a day are forgotten


class Steering:
    """policy None: the pool alone. state: the state of runs, made anew where none is given. budget: the share of the
    pool that may be protected. counters: `requests plans replans failures`."""

    def __init__(
        self, policy: Policy | None, pool: Pool, *, state: RunState | None = None, budget: float = BUDGET
    ) -> None:
        self.policy = policy
        self.pool = pool
        self.counters = {"requests": 0, "plans": 0, "replans": 0, "failures": 0}
        self.now = 0.0
        self.running: dict[str, Running] = {}
        self._keys: dict[Hashable, str] = {}
        self.ledger = Ledger(cast(Ranks, pool), budget=budget)
        self.ledger.replan = self._replan
        self.state = RunState(() if policy is None else policy.intervals) if state is None else state
        if policy is not None:
            if state is not None:
                state.watch(policy.intervals)
            pool.listener = self.ledger
            self._measure(policy)
        self._needs = reads = needs(policy)
        self._until = set(reads.until)
        self._pressure = Pressure(pool, reads.pressing)
        if self.state.gauges.pressure is None:
            self.state.gauges.pressure = self._pressure.of
        if reads.tiers:
            self.ledger.tend = self._tend
        self._reaped = 0.0
        self._mates_matter = self._do_mates_matter()

    # --- requests -----------------------------------------------------------------------------------------

    def request(
        self, request: Request, hashes: Sequence[Hashable], now: float, *, blocks: int | None = None
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
        running = Running(request, lease, given, {request.id}, len(first))
        self.running[request.id] = running
        outcome = Outcome(lease.hits, lease.stored, lease.evicted)
        if self.policy is None:
            return outcome
        failed = arrival is None or self._place(running, arrival, now)
        outcome.plan, outcome.failed = running.plan, failed
        self._heed(now)
        outcome._answer = lambda: self._answers(running)
        return outcome

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
        if running.line is not None:
            try:
                self.ledger.grow(running.line, running.hashes, running.lease, now)
                self.ledger.heed(now)
            except Exception:
                self.counters["failures"] += 1
        self._replan_pressed(now)
        return running.lease.stored[known:]

    def finish(
        self,
        request_id: str,
        now: float,
        *,
        tool_calls: Sequence[ToolCall] = (),
        finished: bool | None = None,
        parts: Sequence[Span] = (),
    ) -> bool:
        """A request's answer is done. tool_calls: what it asked for; finished True: a human is next; neither: it is
        not known yet. parts: what the answer is made of, as spans in the place of its output. False for a request that
        does not run (a late or repeated end has no effect). Raises InputFault for parts that cannot be."""
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
            classified = bool(tool_calls) or finished is not None
            line = running.line
            if line is not None:
                self.ledger.finish(line, running.made, now, classified)
            self.state.answer(running.request, now, tool_calls=tool_calls, finished=finished)
            if classified:
                self._came(running.request.owner, "tool_call" if tool_calls else "turn_end", now)
            if classified and self._needs.events:
                self._replan_owner(running.request.owner, line, now)
            elif line is not None:
                self.ledger.settle(line, now)
            self._replan_run(running.request.owner, now)
            self.ledger.heed(now)
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

    def resume(self, request_id: str, now: float) -> Lease | None:
        """A preempted request goes on: what is left of its blocks is used again (`hits` of the new lease), the rest
        computed anew. None for a request that is not preempted."""
        self.advance(now)
        running = self.running.get(request_id)
        if running is None or not running.lease.released:
            return None
        running.lease = lease = self.pool.acquire(running.hashes[: running.computed], now)
        try:
            if running.line is not None:
                for claim in running.made:
                    claim.ended = False  # used again
                self.ledger.grow(running.line, running.hashes, lease, now)
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
            self.ledger.heed(now)
        except Exception:
            self.counters["failures"] += 1
        return True

    # --- events and time ----------------------------------------------------------------------------------

    def event(self, event: Event, now: float) -> list[Answer]:
        """Something happened to owners: those it addresses are planned again, and what it ends ends."""
        self.advance(now)
        if self.policy is None:
            return [Answer(IGNORED, reason="no policy is in force")]
        try:
            owners = self.state.observe(event)
            for owner in owners:
                self._apply(event, owner, now)
            for owner in owners if self._mates_matter else ():
                self._replan_run(owner, now, frozenset(owners))
            self.ledger.heed(now)
        except Exception as fault:
            self.counters["failures"] += 1
            return [Answer(REJECTED, reason=f"{type(fault).__name__}: {fault}")]
        if not owners:
            return [Answer(IGNORED, reason="no owner agrees with the fields it states")]
        return [Answer(ACCEPTED, len(owners), len(owners))]

    def advance(self, now: float) -> None:
        """Only time passes: what lapses until `now` lapses, each at its own time, before anything else of `now`."""
        if self.policy is None:
            self.now = max(self.now, now)
            return
        try:
            self.ledger.advance(now)
            for owner in self.state.advance(now):
                self._replan_stale(owner, now)
            if now - self._reaped >= REAP_S:
                self._reaped = now
                self.state.reap()
        except Exception:
            self.counters["failures"] += 1
        self.now = max(self.now, now)

    def describe(self, graph: Graph) -> None:
        """The workflow of the runs that begin from now on."""
        self.state.runs.describe(graph)
        self._mates_matter = self._do_mates_matter()

    # --- calls --------------------------------------------------------------------------------------------

    def claim(
        self, owner: Owner, hashes: Sequence[Hashable], now: float, wish: calls.Wish | None = None
    ) -> list[Answer]:
        """A claim by call for the prompt with these block hashes, on blocks that may be idle."""
        self.advance(now)
        if not hashes:
            return [Answer(REJECTED, reason="a claim needs blocks")]
        self.pool.listener = self.ledger
        self.state.know(owner)
        if wish is not None and wish.retention.until is not None:
            self._until.add(wish.retention.until)
        line = self.ledger.claim(owner, hashes, calls.claim_of(wish or calls.Wish(), len(hashes), now), now)
        if line is None:
            return [Answer(UNKNOWN, len(hashes), 0, "none of the blocks is resident")]
        return answers(line, now)

    def release(self, owner: Owner, now: float, hashes: Sequence[Hashable] | None = None) -> list[Answer]:
        """The owner's claims end (those whose end is among `hashes`, where given). Again: no effect."""
        self.advance(now)
        count = self.ledger.release(owner, now, hashes)
        return [Answer(ACCEPTED, count, count, None if count else "nothing was claimed")]

    def release_all(self, now: float) -> int:
        """An operator takes back all protection at once; running requests are not hurt."""
        self.advance(now)
        return self.ledger.release_all(now)

    def evict(self, count: int, now: float) -> list[Hashable]:
        """Make `count` blocks leave, first lost first."""
        self.advance(now)
        lost = self.pool.evict(count, now)
        self._heed(now)
        return lost

    def show(self, hashes: Sequence[Hashable], index: int) -> dict[str, Any]:
        """Block `index` of the prompt with these hashes, as a row; see `show.block_row`."""
        return show.block_row(self.pool, self.ledger, hashes, index, self.now)

    def stats(self) -> dict[str, Any]:
        """`owners claims protected requests_remembered`, the sizes of tables, and the counters."""
        used = self.pool.used
        return {
            "top_band_share": self.pool.count_from(show.TOP_BAND) / used if used else 0.0,
            **show.counts(self.pool, self.ledger, self.now),
            "requests_remembered": len(self.running),
            "timers": len(self.ledger.timers),
            "placed": self.ledger.placed,
            **self.counters,
        }

    # --- inside -------------------------------------------------------------------------------------------

    def measure(self, cost: CostModel) -> None:
        """What tokens cost to keep and to lose; quotas in bytes are kept from now on."""
        self.state.gauges.cost = cost
        if self.policy is not None:
            self._measure(self.policy)

    def _measure(self, policy: Policy) -> None:
        each = self.state.gauges.cost.bytes_per_token
        capacities = {tier.name: tier.capacity for tier in self.pool.tiers}
        sizes = Sizes(capacities, self.pool.block_size, None if each is None else each * self.pool.block_size)
        self.ledger.budget.limits = limits(policy.quotas, sizes)
        self.ledger.share(shares(policy.quotas, sizes))
        stated = whole(policy.quotas, sizes)
        if stated is not None:
            self.ledger.budget.blocks = stated

    def _do_mates_matter(self) -> bool:
        """Whether a step of one owner can change what the policy says of others of its run."""
        return self._needs.fan_out or (self._needs.steps and self.state.runs.graph is not None)

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

    def _arrive(self, request: Request, hashes: list[Hashable], now: float) -> Arrival | None:
        """What the request says of its owner's past and state, before its blocks are looked up. None: that broke."""
        try:
            owner = request.owner
            open_calls = self.state.phase(owner) == "tool_pause"
            arrival = self.ledger.arrive(request, lay_out(request), hashes, now, open_calls=open_calls)
            phase = self.state.phase(owner)
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
            self.ledger.heed(now)
            self.state.touched(request.id, now)
            if self._needs.hits:
                self._note_hits(request, running.lease.hits)
            drawn = outline(self.policy, request, self.state, arrival.layout)
            made = plan(self.policy, request, self.state, now, drawn)
            self.counters["plans"] += 1
            running.plan = made
            running.line = line = self.ledger.place(
                arrival, running.hashes, made.directives, running.lease, now, self._reread(made)
            )
            running.made = line.claims
            line.outline = drawn
            line.valid_until = inf if made.valid_until is None else made.valid_until
            if self._needs.events:
                self._replan_owner(request.owner, None, now, besides=line)
            self._replan_run(request.owner, now)
        except Exception:
            self.ledger.leave(arrival)
            self.counters["failures"] += 1
            return True
        return False

    def _came(self, owner: Owner, event: str, now: float) -> None:
        """What an owner holds until this event is held no more."""
        holder = self.ledger.holder(owner) if event in self._until else None
        if holder is not None:
            self.ledger.came(holder, event, now)

    def _heed(self, now: float) -> None:
        """Take up what the pool has told since, and how full it is by now."""
        try:
            self.ledger.heed(now)
        except Exception:
            self.counters["failures"] += 1
        self._replan_pressed(now)

    def _replan_pressed(self, now: float) -> None:
        """Read plans again whose rules ask how full a tier is, once that has crossed a step."""
        if not self._needs.pressing or not self._pressure.crossed():
            return
        asks = self._needs.reads_pressure_for
        try:
            for holder in list(self.ledger.holders.values()):
                for line in holder.lines():
                    if any(asks(claim.kind) for claim in line.claims):
                        self._replan(line, now)
            self.ledger.heed(now)
        except Exception:
            self.counters["failures"] += 1

    def _relabel(self, running: Running, request: Request, layout: Layout, now: float) -> None:
        """A running request has other spans from now on, with the same blocks."""
        line, before = running.line, running.request
        running.request = request
        if line is None or line.request is not before:
            return  # another request has taken the line over, and says what its prompt is made of
        try:
            drawn = outline(self.policy, request, self.state, layout)
            made = plan(self.policy, request, self.state, now, drawn)
            self.ledger.relabel(line, request, layout, running.hashes, made.directives, now)
            running.plan, running.made, line.outline = made, line.claims, drawn
            line.valid_until = inf if made.valid_until is None else made.valid_until
            line.replan = self._reread(made) or inf
        except Exception:
            self.counters["failures"] += 1

    def _replan_owner(self, owner: Owner, line: Line | None, now: float, besides: Line | None = None) -> None:
        """Read the plans of an owner again. A nameless owner may be many users: then of the given line alone."""
        holder = self.ledger.holder(owner)
        if holder is None:
            return
        for each in (line,) if _is_a_crowd(holder) else holder.lines():
            if each is not None and each is not besides and not each.manual:
                self._replan(each, now)

    def _replan_run(self, owner: Owner, now: float, planned: frozenset[Owner] = frozenset()) -> None:
        """What `owner` did changes what holds for others of its run: how far away they are, how many forked off."""
        if not self._mates_matter:
            return
        for mate in self.state.run_mates(owner):
            if mate != owner and mate not in planned:
                self._replan_owner(mate, None, now)

    def _note_hits(self, request: Request, hits: int) -> None:
        """What an owner finds cached at its first request, others have left there; those of another run or session
        count (of branches of one agent in one session the first)."""
        owner = request.owner
        holder = self.ledger.holder(owner)
        if holder is not None and (holder.nameless or holder.chains or holder.manual):
            return
        if any(mate.agent == owner.agent and mate != owner for mate in self.state.run_mates(owner)):
            return
        found = {s.kind for s in request.spans if s.end is not None and s.end <= hits * request.block_size}
        for kind in sorted(found):
            self.state.record_hit(owner, kind)

    def _replan(self, line: Line, now: float) -> None:
        if line.request is None:
            return
        for owner in self.state.advance(now):
            self._replan_stale(owner, now, line)
        made = plan(self.policy, line.request, self.state, now, cast(Outline | None, line.outline))
        self.counters["replans"] += 1
        line.valid_until = inf if made.valid_until is None else made.valid_until
        self.ledger.plan(line, made.directives, now, self._reread(made))

    def _tend(self, line: Line, now: float) -> float:
        """Let a line's blocks sink or rise to where its claims want them. Returns when to look again."""
        return ladder.step(line, cast(Tiers, self.pool), now, self._wanted_from)

    def _wanted_from(self, line: Line, claim: Claim) -> float:
        """When a claim's blocks are to be back on their first rung; inf for never, as far as is known."""
        wish = claim.directive
        if wish is None or wish.prefetch is False or claim.ended:
            return inf
        if wish.prefetch is True:
            return -inf
        subject = Subject(claim.kind, attributes_of(line, claim), line.holder.owner, claim.span)
        ahead = self.state.read("next_use", None, subject)
        return inf if ahead is None else self.state.now + ahead - wish.prefetch

    def _replan_stale(self, owner: Owner, now: float, besides: Line | None = None) -> None:
        """A grace or a bound of the owner ended: read again those of its plans that had it in mind."""
        holder = self.ledger.holder(owner)
        for line in () if holder is None else holder.lines():
            if line.valid_until <= now and line is not besides:
                self._replan(line, now)

    def _reread(self, made: Plan) -> float | None:
        """When a plan has to be read again. What lapses by the claims' own clocks needs no reading."""
        until = made.valid_until
        if until is None or self._needs.drifts:
            return until
        own = any(until in (w.protected_until, w.expires) for w in wishes_of(made.directives).values())
        return None if own else until

    def _apply(self, event: Event, owner: Owner, now: float) -> None:
        holder = self.ledger.holder(owner)
        if event.name == "cancel":
            for request_id in [i for i, r in self.running.items() if r.request.owner == owner]:
                self.cancel(request_id, now)
        if holder is None:
            return
        self._came(owner, event.name, now)
        if event.name == "compact":
            for chain in holder.chains.values():
                chain.compacted = True
        for line in [] if _is_a_crowd(holder) else holder.lines():
            if not line.manual:
                self.ledger.classify(line, now)
                if self._needs.events:
                    self._replan(line, now)
                else:
                    self.ledger.settle(line, now)
        ends = ENDS.get(event.name)
        if ends is not None:
            self.ledger.end(holder, ends, now)

    def _answers(self, running: Running) -> list[Answer]:
        if running.line is None:
            return [Answer(IGNORED, reason="planning failed; the request is served as without a policy")]
        return answers(running.line, self.now)


def _is_a_crowd(holder: Holder) -> bool:
    """Whether an owner known by prefix alone stands for more users than can be planned again at every event."""
    return holder.nameless and sum(len(chain.lines) for chain in holder.chains.values()) > CROWD


__all__ = ["ENDS", "Steering"]
