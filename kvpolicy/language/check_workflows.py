"""Workflows: nodes declared once, edges and calls between them, the workflows that stand in them.

A pass of `check`. How likely the ways out of a node are and how often they are taken have files of their own
(`check_chances`, `check_counts`).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping

from kvpolicy.faults import Diagnostic, Note, Place
from kvpolicy.language import codes, syntax
from kvpolicy.language.callers import CIRCLE_MEND, circle_message, circles
from kvpolicy.language.check_chances import chances
from kvpolicy.language.check_counts import bounds, counts
from kvpolicy.language.check_names import unknown
from kvpolicy.language.nesting import MOST_TOLD, nest, node_names
from kvpolicy.language.spelling import is_worth_it
from kvpolicy.language.typer import Typer


def check_workflows(files: syntax.FileSet, typer: Typer) -> None:
    """Nodes are declared once, and edges run between those; what stands in a workflow is another that exists, and never
    itself."""
    found = nest(files, typer.scope.lost)
    typer.faults += found.faults
    for workflow in found.workflows:
        nodes = _declared(workflow, typer.faults)
        typer.faults += _undeclared(workflow, nodes, typer.scope.lost)
        typer.faults += _calls(workflow)
        typer.faults += counts(workflow)
        typer.faults += bounds(workflow)
        typer.faults += chances(workflow)


def _declared(workflow: syntax.Workflow, faults: list[Diagnostic]) -> dict[str, Place]:
    """The nodes by name. What is declared twice is told; so is `"a/b"` beside a workflow `a` that has a node `b`."""
    nodes: dict[str, Place] = {}
    for node in workflow.nodes:
        if node.name in nodes:
            named = f"give it a name of its own: `workflow {'.'.join(node.path)} as NAME`"
            fix = named if node.path else "remove one of the two"
            note = Note(nodes[node.name], "declared here already")
            message = f"the node '{node.name}' is declared twice"
            faults.append(codes.DEFINED_TWICE.at(node.place, message, notes=(note,), fix=fix))
        nodes.setdefault(node.name, node.place)
    for node in workflow.nodes:
        if node.nested is None:
            continue
        begins = f"{node.name}/"
        long = {name: place for name, place in nodes.items() if name.startswith(begins)}
        inner = set(node_names(node.nested)) if long else set()
        for name, place in long.items():
            if name.removeprefix(begins) in inner:
                note = Note(node.place, "it stands in the workflow of this node")
                message = f"the node '{name}' is declared twice"
                faults.append(codes.DEFINED_TWICE.at(place, message, notes=(note,), fix="give it another name"))
    return nodes


def _undeclared(workflow: syntax.Workflow, nodes: Mapping[str, Place], lost: Container[str]) -> Iterator[Diagnostic]:
    """Names that no node has, one message each. A large text may be full of them, and to find the nearest node takes
    as long as there are nodes: where there are many only the first are compared, and of very many only the first are
    told one by one."""
    strange: dict[str, tuple[Place, str]] = {}
    for name, place, other in _named(workflow):
        if name not in nodes and name not in lost:
            strange.setdefault(name, (place, other))
    for number, (name, (place, other)) in enumerate(strange.items()):
        if number == MOST_TOLD:
            message = f"nodes of '{workflow.name}' that are not declared: {len(strange) - number:,} more"
            yield codes.UNKNOWN_NAME.at(place, message, fix="declare them: `agent NAME, NAME`")
            return
        known = nodes.keys() - {other} if is_worth_it(number, len(nodes)) else ()  # none leads to itself by a slip
        yield unknown("node", name, place, known, f"declare it: `agent {name}`")


def _named(workflow: syntax.Workflow) -> Iterable[tuple[str, Place, str]]:
    """The nodes that are spoken of, where, and the other one there."""
    for edge in workflow.edges:
        yield edge.source, edge.place, edge.target
        yield edge.target, edge.place, edge.source
    for node in workflow.nodes:
        if node.parent is not None:
            yield node.parent, node.parent_place or node.place, node.name


def _calls(workflow: syntax.Workflow) -> Iterator[Diagnostic]:
    """A sub-agent is another's, who is not its own; its caller does not also hand on to it; its end leads nowhere."""
    callers = {node.name: node for node in workflow.nodes if node.parent is not None}
    for node in callers.values():
        if node.parent == node.name:
            message = f"'{node.name}' cannot be a sub-agent of itself"
            place = node.parent_place or node.place
            yield codes.UNKNOWN_NAME.at(place, message, fix="name the node that calls it, or write a `loop`")
    known = {node.name for node in workflow.nodes}
    told = {node.name for node in callers.values() if node.parent not in known}  # that is said already
    for circle in circles({node.name: node.parent for node in callers.values() if node.parent is not None}):
        told.update(circle)
        first = callers[circle[0]]
        yield codes.UNKNOWN_NAME.at(first.parent_place or first.place, circle_message(circle), fix=CIRCLE_MEND)
    for edge in workflow.edges:
        called, leads = callers.get(edge.target), callers.get(edge.source)
        if called is not None and called.parent == edge.source != edge.target:
            note = Note(called.place, f"a sub-agent of '{edge.source}', which calls it while it runs itself")
            message = f"'{edge.source}' calls '{edge.target}', so it cannot hand on to it as well"
            fix = f"remove the edge, or ` of {edge.source}`"
            yield codes.DEFINED_TWICE.at(edge.place, message, notes=(note,), fix=fix)
        elif leads is not None and leads.name not in told:
            told.add(leads.name)
            note = Note(leads.place, f"a sub-agent of '{leads.parent}', which goes on when it is done")
            message = f"'{leads.name}' is a sub-agent, so its end leads nowhere, and not to '{edge.target}'"
            fix = f"remove the way, or ` of {leads.parent}`"
            yield codes.DEFINED_TWICE.at(edge.place, message, notes=(note,), fix=fix)
