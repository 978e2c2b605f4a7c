"""UNREACHABLE_NODE: nodes of a workflow that no way from where its runs begin leads to.

The notice of `workflow.graph_check`, at the node's place in the text; a workflow that stands in another tells of its
own nodes by itself.
"""

from __future__ import annotations

from kvpolicy.faults import NOTICE, Diagnostic
from kvpolicy.language import syntax
from kvpolicy.policy.analysis.view import View


def unreachable_nodes(view: View) -> list[Diagnostic]:
    """A notice for each: its spans count as never needed again, so whatever a rule says of the next use is lost."""
    return [_notice(node, workflow.name) for workflow in view.policy.workflows for node in unreachable(workflow)]


def unreachable(workflow: syntax.Workflow) -> list[syntax.Node]:
    """The nodes of one workflow that no way from where its runs begin leads to."""
    nodes = {node.name: node for node in workflow.nodes}
    after: dict[str, list[str]] = {name: [] for name in nodes}
    led_to: set[str] = set()
    loops = {(edge.source, edge.target) for edge in workflow.edges if edge.is_loop}
    calls = [(node.parent, node.name) for node in workflow.nodes if node.parent is not None]
    for source, target in (*calls, *((edge.source, edge.target) for edge in workflow.edges)):
        if source not in nodes or target not in nodes:
            continue
        after[source].append(target)
        if (source, target) not in loops and source != target:
            led_to.add(target)
    goes_on = {name for name in nodes if after[name] or _has_ways(nodes[name].nested)}
    begins = [name for name in nodes if name not in led_to and (name in goes_on or not goes_on)]
    seen = dict.fromkeys(begins or [*nodes][:1])
    waiting = [*seen]
    while waiting:
        for target in after[waiting.pop()]:
            if target not in seen:
                seen[target] = None
                waiting.append(target)
    return [node for name, node in nodes.items() if name not in seen]


def _has_ways(workflow: syntax.Workflow | None) -> bool:
    """Whether a workflow that stands here has edges, so that its beginning leads on."""
    if workflow is None:
        return False
    return bool(workflow.edges) or any(node.parent or _has_ways(node.nested) for node in workflow.nodes)


def _notice(node: syntax.Node, workflow: str) -> Diagnostic:
    message = f"no way through workflow {workflow} leads to '{node.name}'; its spans count as never needed again"
    fix = f"write a way to it, such as `NODE -> {node.name}`, or remove it"
    return Diagnostic("UNREACHABLE_NODE", "UNREACHABLE_NODE", NOTICE, node.place, message, fix=fix)
