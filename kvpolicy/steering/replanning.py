"""Reading plans: when a request comes, when an event addresses its owner, when time or pressure changes an answer.

The lowest part of `steering`: what requests, events and calls build on. Whatever breaks on this side is counted, and
the request is served as if there were no policy (law 10).
"""

from __future__ import annotations

from math import inf
from typing import cast

from kvpolicy.blocks import Layout
from kvpolicy.claims.claim import Claim
from kvpolicy.claims.ledger import BUDGET, Ledger
from kvpolicy.claims.line import Line
from kvpolicy.claims.owners import Holder
from kvpolicy.claims.ranks import Ranks, Tiers
from kvpolicy.claims.wish import distinct_of
from kvpolicy.directive import Plan
from kvpolicy.plan import Outline, Said, outline, plan
from kvpolicy.policy.model import Subject
from kvpolicy.policy.policy import Policy
from kvpolicy.pool import Pool
from kvpolicy.request import Owner, Request
from kvpolicy.steering import ladder
from kvpolicy.steering.limits import Sizes, attributes_of, limits, shares, whole
from kvpolicy.steering.needs import needs
from kvpolicy.steering.pace import Pace, TimeSpent
from kvpolicy.steering.pressure import Pressure
from kvpolicy.workflow.gauges import CostModel
from kvpolicy.workflow.graph import Graph
from kvpolicy.workflow.state import RunState

CROWD = 32  # prompts of one nameless owner
REAP_S = 3600.0  # how often owners of whom nothing was heard for a day are forgotten


class Replanning:
    """policy None: the pool alone. state: the state of runs, made anew where none is given. budget: the share of the
    pool that may be protected. counters: `requests plans replans failures`, and `overdue`: plans given up for their
    time. pace: the time that one may take; without a bound until somebody sets one."""

    def __init__(
        self, policy: Policy | None, pool: Pool, *, state: RunState | None = None, budget: float = BUDGET
    ) -> None:
        self.policy = policy
        self.pool = pool
        self.counters = {"requests": 0, "plans": 0, "replans": 0, "failures": 0, "overdue": 0}
        self.pace = Pace()
        self.now = 0.0
        self.ledger = Ledger(cast(Ranks, pool), budget=budget)
        self.ledger.replan = self._replan
        self.state = RunState(() if policy is None else policy.intervals) if state is None else state
        if policy is not None:
            if state is not None:
                state.watch(policy.intervals)
            pool.listener = self.ledger
            self._measure(policy)
        self._needs = reads = needs(policy)
        if state is None:  # a state of one's own learns what this policy asks for
            self.state.learned.wanted, self.state.learned.pauses.wanted = reads.times, reads.density
        self._until = set(reads.until)
        self._pressure = Pressure(pool, reads.pressing)
        if self.state.gauges.pressure is None:
            self.state.gauges.pressure = self._pressure.of
        if reads.tiers:
            self.ledger.tend = self._tend
        self._reaped = 0.0
        self._mates_matter = self._do_mates_matter()

    def advance(self, now: float) -> None:
        """Only time passes: what lapses until `now` lapses, each at its own time, before anything else of `now`."""
        if self.policy is None:
            self.now = max(self.now, now)
            return
        try:
            self.ledger.advance(now)
            for owner in self.state.advance(now):
                self._replan_stale(owner, now)
            for owner in self.state.silenced():
                self._replan_owner(owner, None, now)
            if now - self._reaped >= REAP_S:
                self._reaped = now
                self.state.reap()
        except Exception:
            self.counters["failures"] += 1
        self.now = max(self.now, now)

    def measure(self, cost: CostModel) -> None:
        """What tokens cost to keep and to lose; quotas in bytes are kept from now on."""
        self.state.gauges.cost = cost
        if self.policy is not None:
            self._measure(self.policy)

    def describe(self, graph: Graph, tenant: str | None = None) -> None:
        """The workflow of the runs that begin from now on. tenant: whose graph it is, where that is known."""
        self.state.runs.describe(graph, tenant)
        self._mates_matter = self._do_mates_matter()

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

    # --- inside -------------------------------------------------------------------------------------------

    def _plan(self, request: Request, layout: Layout, now: float) -> tuple[Plan, Outline | None]:
        """The first plan of a request, and what its plans have in common."""
        look = self.pace.start()
        drawn = outline(self.policy, request, self.state, layout)
        return plan(self.policy, request, self.state, now, drawn, look), drawn

    def _came(self, owner: Owner, event: str, now: float, grace: float = 0.0) -> None:
        """What an owner holds until this event is held no more, or for a grace until its next request."""
        holder = self.ledger.holder(owner) if event in self._until else None
        if holder is not None:
            self.ledger.came(holder, event, now, grace)

    def _heed(self, now: float) -> None:
        """Take up what the pool has told since, and how full it is by now."""
        try:
            self.ledger.heed(now)
        except Exception:
            self.counters["failures"] += 1
        self._replan_pressed(now)

    def _replan(self, line: Line, now: float) -> None:
        if line.request is None:
            return
        for owner in self.state.advance(now):
            self._replan_stale(owner, now, line)
        drawn = cast(Outline | None, line.outline)
        try:
            made = plan(self.policy, line.request, self.state, now, drawn, self.pace.start())
        except TimeSpent:  # what was said last stands
            self.counters["overdue"] += 1
            return
        self.counters["replans"] += 1
        line.valid_until = inf if made.valid_until is None else made.valid_until
        self.ledger.plan(line, made.directives, now, self._reread(made))

    def _replan_owner(self, owner: Owner, line: Line | None, now: float, besides: Line | None = None) -> None:
        """Read the plans of an owner again. A nameless owner may be many users: then of the given line alone."""
        holder = self.ledger.holder(owner)
        if holder is None:
            return
        for each in (line,) if is_a_crowd(holder) else holder.lines():
            if each is not None and each is not besides and not each.manual:
                self._replan(each, now)

    def _replan_run(self, owner: Owner, now: float, planned: frozenset[Owner] = frozenset()) -> None:
        """What `owner` did changes what holds for others of its run: how far away they are, how many forked off."""
        if not self._mates_matter:
            return
        for mate in self.state.run_mates(owner):
            if mate != owner and mate not in planned:
                self._replan_owner(mate, None, now)

    def _replan_stale(self, owner: Owner, now: float, besides: Line | None = None) -> None:
        """A grace or a bound of the owner ended: read again those of its plans that had it in mind."""
        holder = self.ledger.holder(owner)
        for line in () if holder is None else holder.lines():
            if line.valid_until <= now and line is not besides:
                self._replan(line, now)

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

    def _reread(self, made: Plan | Said) -> float | None:
        """When a plan has to be read again. What lapses by the claims' own clocks needs no reading."""
        until = made.valid_until
        if until is None or self._needs.drifts:
            return until
        wishes = made.distinct if isinstance(made, Said) else distinct_of(made.directives)
        own = any(until in (wish.protected_until, wish.expires) for wish in wishes)
        return None if own else until


def is_a_crowd(holder: Holder) -> bool:
    """Whether an owner known by prefix alone stands for more users than can be planned again at every event."""
    return holder.nameless and sum(len(chain.lines) for chain in holder.chains.values()) > CROWD
