"""The embedded engine as an adapter: `memory`. Its own eviction follows our ranks, so nothing of a plan is lost.

Found by entry point like every other (`kvpolicy.adapters`). `lower` shows a plan in its form; `open` starts an engine.
"""

from __future__ import annotations

from kvpolicy import __version__
from kvpolicy.adapter import READY, Capabilities, Lowered
from kvpolicy.blocks import lay_out
from kvpolicy.claims.ledger import BUDGET
from kvpolicy.directive import Plan
from kvpolicy.plan.rows import directive_row
from kvpolicy.policy.policy import Policy
from kvpolicy.pool import Pool
from kvpolicy.request import Request
from kvpolicy.steering import Steering
from kvpolicy.steering.begin import begin
from kvpolicy.steering.pace import PLAN_WITHIN_S, Pace

CAPABILITIES = Capabilities(
    name="memory",
    version=__version__,
    unit_s=0.001,
    zero_means="nothing is kept",
    verified="engine-executed",
    versions=f"=={__version__}",
    granularity="range",
    merge="strongest claim of all owners",
    ttl_origin="last release",
    ranks_change=True,
    tiers=("gpu", "cpu", "disk"),
    prefetch=True,
    limits=True,
    events=True,
)


class Memory:
    """The adapter. Stateless: each `open` makes an engine of its own."""

    @property
    def capabilities(self) -> Capabilities:
        """What the embedded engine can do."""
        return CAPABILITIES

    def lower(self, plan: Plan, request: Request) -> Lowered:
        """The directives as they are; the answer counts the blocks that they claim."""
        layout = lay_out(request)
        claimed = max((layout.prefix(directive.span) for directive in plan.directives), default=0)
        answer = {"status": "accepted", "requested": claimed, "granted": claimed, "reason": None}
        return Lowered({"directives": [directive_row(d) for d in plan.directives]}, (), READY, answer)

    def open(
        self,
        policy: Policy | None,
        *,
        blocks: int,
        block_size: int,
        cpu_blocks: int = 0,
        disk_blocks: int = 0,
        budget: float = BUDGET,
    ) -> Steering:
        """An empty engine under a policy (None: the engine alone). Sizes in blocks, block_size in tokens, budget as a
        share of `blocks`. Raises InputFault for sizes that cannot be."""
        pool = Pool(blocks, block_size=block_size, cpu_blocks=cpu_blocks, disk_blocks=disk_blocks)
        return begin(policy, pool, budget=budget, pace=Pace(PLAN_WITHIN_S))


adapter = Memory()
