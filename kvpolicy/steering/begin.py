"""A steering as everyone starts one: the pool, the state of runs, and the workflow that the policy itself describes."""

from __future__ import annotations

from kvpolicy.claims.ledger import BUDGET
from kvpolicy.language.nesting import outermost
from kvpolicy.policy.policy import Policy
from kvpolicy.pool import Pool
from kvpolicy.steering.pace import Pace
from kvpolicy.steering.steering import Steering
from kvpolicy.workflow.graph import Graph
from kvpolicy.workflow.state import RunState


def begin(
    policy: Policy | None,
    pool: Pool,
    *,
    graph: Graph | None = None,
    budget: float = BUDGET,
    pace: Pace | None = None,
) -> Steering:
    """Steering over an empty pool. graph: the workflow of its runs; else the only one that the policy describes and
    that stands in no other. budget: the share of the pool that may be protected where the policy states none. pace: the
    time for one plan."""
    if policy is None:
        return Steering(None, pool, budget=budget)
    whole = outermost(policy.workflows)
    if graph is None and len(whole) == 1:
        graph = Graph.build(whole[0])
    steering = Steering(policy, pool, state=RunState(policy.intervals, graph), budget=budget)
    steering.pace = pace or steering.pace
    return steering
