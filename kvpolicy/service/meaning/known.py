"""Whether names that a client says are anybody's: a policy that is not offered, a workflow or a node that nobody knows.

Asked by `decisions` once the run state has heard of the request. A name counts as known where a graph or a rule of the
policy in force has it; what is said beside that changes nothing, and its client should hear so.
"""

from __future__ import annotations

from functools import lru_cache

from kvpolicy.policy.policy import Policy
from kvpolicy.request import Owner
from kvpolicy.service.meaning.annotations import Annotations, Context, Warned
from kvpolicy.service.policies import Version
from kvpolicy.workflow.runs import Runs

NOT_OFFERED, NO_WORKFLOW, NO_NODE = "POLICY_NOT_OFFERED", "UNKNOWN_WORKFLOW", "UNKNOWN_NODE"


def unknown(said: Annotations, context: Context, owner: Owner, version: Version, runs: Runs) -> list[Warned]:
    """What to answer for names that mean nothing. version: what the request is planned by."""
    found = []
    if said.policy is not None and said.policy not in (version.name, version.shown):
        found.append(Warned(NOT_OFFERED, "policy", said.policy))
    if context.workflow is None and context.node is None:
        return found
    followed = runs.named.find(owner.tenant, context.workflow)
    if context.workflow is not None and followed is None and context.workflow not in named(version.policy)["workflow"]:
        found.append(Warned(NO_WORKFLOW, "workflow", context.workflow))
    if context.node is not None:
        standing = runs.standing(owner)
        position = None if standing is None else standing.position
        graph = position.graph if position is not None else None if followed is None else followed.graph
        if graph is not None and graph.find(context.node) is None and context.node not in named(version.policy)["node"]:
            found.append(Warned(NO_NODE, "node", context.node))
    return found


@lru_cache(maxsize=64)
def named(policy: Policy) -> dict[str, frozenset[object]]:
    """The workflows and nodes that a policy's selectors and events speak of."""
    matches = [m for row in (policy.rules, policy.clamps, policy.quotas) for each in row for m in each.matches]
    conditions = [condition for m in matches for condition in m.conditions]
    for pattern in policy.intervals:
        for event in (pattern.start, pattern.until):
            conditions += () if event is None else event.conditions
    return {
        wanted: frozenset(value for name, _, values in conditions if name == wanted for value in values)
        for wanted in ("workflow", "node")
    }
