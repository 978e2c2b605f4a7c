"""How likely the ways out of a node are: each a share of one, together one at most.

Part of the pass `check_workflows`. As `workflow.graph_ways` has it, edges are taken together if their ways meet at a
barrier again, on different edges of it. They are one choice then, with one probability.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from kvpolicy import units
from kvpolicy.faults import Diagnostic, Note
from kvpolicy.language import codes, syntax

_NOISE = 1e-9
_MOST_STEPS = 2_000_000  # edges walked along in one workflow; of one so large the first nodes are told
Ends = tuple[str, str]


def chances(workflow: syntax.Workflow) -> Iterator[Diagnostic]:
    """What is wrong with the probabilities of a workflow's edges."""
    told: dict[Ends, syntax.Edge] = {}
    for edge in workflow.edges:
        if edge.probability is None:
            continue
        fault = _share(edge.probability) or _again(edge, told)
        if fault is not None:
            yield fault
        else:
            told.setdefault((edge.source, edge.target), edge)
    if told:
        yield from _choices(workflow, told)


def value(literal: syntax.Literal) -> float:
    """The share that a literal of a probability means, as a program would write it: 33.3% is 0.333."""
    quantity = literal.quantity
    return round(quantity.value, 12) if quantity.unit == units.PERCENT else quantity.value


def _share(literal: syntax.Literal) -> Diagnostic | None:
    """A share of one, above nothing."""
    number, unit = literal.quantity.value, literal.quantity.unit
    if unit not in (units.COUNT, units.PERCENT):
        message = f"the probability of a way is a share, and {literal.text} is none"
        return codes.UNIT_MISMATCH.at(literal.place, message, fix="write it as `30%` or `0.3`")
    if number <= 0:
        message = f"a way with a probability of {literal.text} is never taken"
        return codes.OUT_OF_RANGE.at(literal.place, message, fix="remove it, or write how likely it is, such as 5%")
    if number > 1:
        per_cent = unit == units.COUNT and number <= 100
        fix = f"write `{literal.text}%`" if per_cent else "write a share from above 0% to 100%"
        message = f"a probability is 100% at most, and this is {literal.text}"
        return codes.OUT_OF_RANGE.at(literal.place, message, fix=fix)
    return None


def _again(edge: syntax.Edge, told: Mapping[Ends, syntax.Edge]) -> Diagnostic | None:
    """An edge may be written twice, as in a chain and as a loop; its probability is one."""
    first = told.get((edge.source, edge.target))
    if (
        first is None
        or first.probability is None
        or edge.probability is None
        or value(first.probability) == value(edge.probability)
    ):
        return None
    note = Note(first.probability.place, f"{first.probability.text} here")
    message = f"the way from '{edge.source}' to '{edge.target}' has two probabilities"
    return codes.DEFINED_TWICE.at(edge.probability.place, message, notes=(note,), fix="keep one of the two")


def _choices(workflow: syntax.Workflow, told: Mapping[Ends, syntax.Edge]) -> Iterator[Diagnostic]:
    """Edges that are taken together have one probability; those that exclude each other add up to 1 at most."""
    ways = Choices(workflow)
    for source in dict.fromkeys(source for source, _ in told):
        stated: list[syntax.Literal] = []
        found: list[Diagnostic] = []
        for together in ways.out_of(source):
            same = [
                (told[ends].target, share) for ends in together if ends in told and (share := told[ends].probability)
            ]
            other = next((one for one in same if value(one[1]) != value(same[0][1])), None)
            if other is not None:
                found.append(_differ(source, same[0], other))
            stated += [share for _, share in same[:1]]
        whole = sum(value(share) for share in stated)
        if not found and whole > 1 + _NOISE:
            notes = tuple(Note(share.place, f"{share.text} here") for share in stated[:-1])
            message = f"the ways out of '{source}' add up to {round(100 * whole, 6):g}%, and a run takes one of them"
            fix = "write shares of 100% at most together; one without a share has the rest"
            found.append(codes.OUT_OF_RANGE.at(stated[-1].place, message, notes=notes, fix=fix))
        yield from found
        if ways.steps > _MOST_STEPS:
            return


def _differ(source: str, one: tuple[str, syntax.Literal], other: tuple[str, syntax.Literal]) -> Diagnostic:
    note = Note(one[1].place, f"{one[1].text} here, to '{one[0]}'")
    message = f"'{source}' leads to '{one[0]}' and '{other[0]}' together, as a barrier waits for both"
    fix = "write one probability for both, or let their ways meet at an agent"
    return codes.OUT_OF_RANGE.at(other[1].place, message, notes=(note,), fix=fix)


class Choices:
    """The edges of a workflow, each once, and which of those out of one node are taken together. steps: edges that were
    walked along so far."""

    def __init__(self, workflow: syntax.Workflow) -> None:
        self.steps = 0
        self._behind: dict[str, dict[str, set[Ends]]] = {}
        self._waits = {node.name for node in workflow.nodes if _waits(node)}
        self._loops = {(e.source, e.target) for e in workflow.edges if e.is_loop}
        self._out_of: dict[str, dict[str, None]] = {}
        for edge in workflow.edges:
            self._out_of.setdefault(edge.source, {})[edge.target] = None

    def out_of(self, source: str) -> Sequence[Sequence[Ends]]:
        """The edges out of a node: one list for each choice that a run has there."""
        found: list[list[Ends]] = []
        ahead = {(source, target): self._joins_ahead((source, target)) for target in self._out_of.get(source, ())}
        for edge, joins in ahead.items():
            same = [each for each in found if any(_meet(joins, ahead[other]) for other in each)]
            found = [each for each in found if each not in same]
            found.append([*(other for each in same for other in each), edge])
        return found

    def _joins_ahead(self, start: Ends) -> Mapping[str, set[Ends]]:
        """Barriers behind an edge without taking a loop after it: by which of their edges they are reached."""
        target = start[1]
        if target not in self._behind:
            self._behind[target] = self._joins_behind(target)
        joins = self._behind[target]
        if target in self._waits and start not in self._loops:
            joins = {**joins, target: {start, *joins.get(target, ())}}
        return joins

    def _joins_behind(self, node: str) -> dict[str, set[Ends]]:
        joins: dict[str, set[Ends]] = {}
        seen, stack = {node}, [node]
        while stack and self._waits:
            here = stack.pop()
            for target in self._out_of.get(here, ()):
                self.steps += 1
                edge = (here, target)
                if edge in self._loops:
                    continue
                if target in self._waits:
                    joins.setdefault(target, set()).add(edge)
                if target not in seen:
                    seen.add(target)
                    stack.append(target)
        return joins


def _meet(mine: Mapping[str, set[Ends]], theirs: Mapping[str, set[Ends]]) -> bool:
    return any(mine[join] - theirs[join] and theirs[join] - mine[join] for join in mine.keys() & theirs.keys())


def _waits(node: syntax.Node) -> bool:
    """A barrier; or a workflow that begins with one, which then waits for all that lead to the workflow."""
    if node.nested is None:
        return node.role == "barrier"
    entered = {edge.target for edge in node.nested.edges if not edge.is_loop and edge.source != edge.target}
    return any(_waits(inner) for inner in _entries(node.nested.nodes, entered))


def _entries(nodes: Iterable[syntax.Node], entered: set[str]) -> Iterator[syntax.Node]:
    return (node for node in nodes if node.name not in entered and node.parent is None)
