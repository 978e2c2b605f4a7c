"""Workflows that stand in others as a node: looked up by name, so that each block knows what its nodes stand for.

`check` tells the faults; `policy.compile` and the command line take the blocks, and `workflow` makes graphs of them.
A nested workflow is named as a rule is behind `over`: by itself within its file's group, else behind the group's name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from kvpolicy.faults import Diagnostic, Place
from kvpolicy.language import codes, syntax
from kvpolicy.language.spelling import is_worth_it, nearest

MOST_NODES = 10_000  # of a workflow, with those of the workflows in it: names are cheap to write and multiply
DEEPEST = 16  # workflows within one another
MOST_TOLD = 50  # unknown names, one by one
Key = tuple[str, str]  # group, name


@dataclass(frozen=True, slots=True)
class Nested:
    """`workflows`: every block of a set, in its order, its nodes with their workflows; a node whose workflow is at
    fault has none."""

    workflows: tuple[syntax.Workflow, ...]
    faults: tuple[Diagnostic, ...]


def nest(files: syntax.FileSet, lost: frozenset[str] = frozenset()) -> Nested:
    """The workflows of a set. lost: words of text that was passed over; names among them are not called unknown."""
    looking = _Looking(files, lost)
    looking.all()
    shown = tuple(
        looking.done.get((m.group, w.name), w) if looking.known[m.group, w.name] is w else w
        for m in files.members
        for w in m.file.workflows
    )
    return Nested(shown, tuple(looking.faults))


def find(path: tuple[str, ...], group: str, known: Mapping[Key, object]) -> Key | None:
    """The workflow that a path means, seen from a group."""
    inner = ".".join((*((group,) if group else ()), *path[:-1]))
    return next((key for key in ((inner, path[-1]), (".".join(path[:-1]), path[-1])) if key in known), None)


def outermost(workflows: Sequence[syntax.Workflow]) -> tuple[syntax.Workflow, ...]:
    """Those that stand in no other; runs that name none follow the only one of them."""
    inner = {id(node.nested) for workflow in workflows for node in workflow.nodes if node.nested is not None}
    return tuple(workflow for workflow in workflows if id(workflow) not in inner)


def node_names(workflow: syntax.Workflow) -> Iterable[str]:
    """Every name that a node of a run may be called by: declared, in an edge, of nested workflows with and without
    the name of the node they stand in."""
    names = {edge.source for edge in workflow.edges} | {edge.target for edge in workflow.edges}
    for node in workflow.nodes:
        names.add(node.name)
        if node.nested is not None:
            inner = set(node_names(node.nested))
            names |= inner | {f"{node.name}/{name}" for name in inner}
    return names


class _Looking:
    """One lookup over a set. `done`: blocks with their nodes' workflows, inner ones first."""

    def __init__(self, files: syntax.FileSet, lost: frozenset[str]) -> None:
        self.known: dict[Key, syntax.Workflow] = {}
        for member in files.members:
            for workflow in member.file.workflows:
                self.known.setdefault((member.group, workflow.name), workflow)
        self.done: dict[Key, syntax.Workflow] = {}
        self.faults: list[Diagnostic] = []
        self._lost = lost
        self._meant: dict[Key, dict[int, Key]] = {key: {} for key in self.known}  # by number of the node
        self._size: dict[Key, tuple[int, int]] = {}  # nodes when laid flat, workflows within one another
        self._strange: list[Place] = []  # nodes whose workflows are not there
        self._refused: set[Key] = set()  # too deep or too large: those around them are not told as well

    def all(self) -> None:
        for key, workflow in self.known.items():
            for number, node in enumerate(workflow.nodes):
                if node.path:
                    self._look_up(key, number, node)
        more = self._strange[MOST_TOLD:]
        if more:
            message = f"workflows that do not exist: {len(more):,} more"
            self.faults.append(codes.UNKNOWN_NAME.at(more[0], message, fix="write them: `workflow NAME { … }`"))
        for key in self.known:
            self._inner_first(key)

    def _look_up(self, key: Key, number: int, node: syntax.Node) -> None:
        found = find(node.path, key[0], self.known)
        place = node.path_place or node.place
        if found is None:
            if node.path[-1] not in self._lost:
                self._unknown(node, place, key)
        elif self.known[found].nodes:
            self._meant[key][number] = found
        elif not self._lost:
            message = f"the workflow '{found[1]}' declares no nodes, so it cannot stand in another"
            self.faults.append(codes.UNKNOWN_NAME.at(place, message, fix="declare them there: `agent NAME`"))

    def _unknown(self, node: syntax.Node, place: Place, key: Key) -> None:
        """The first are told one by one; `all` says how many more there are."""
        self._strange.append(place)
        if len(self._strange) > MOST_TOLD:
            return
        written, near = ".".join(node.path), None
        if is_worth_it(len(self._strange) - 1, len(self.known)):
            names = [name if group == key[0] else f"{group}.{name}" for group, name in self.known]
            names.remove(key[1])
            near = nearest(written, names) or next((name for name in names if name.endswith(f".{written}")), None)
        fix = f"did you mean `{near}`?" if near else f"write it: `workflow {node.path[-1]} {{ … }}` beside this one"
        self.faults.append(codes.UNKNOWN_NAME.at(place, f"there is no workflow '{written}'", fix=fix))

    def _inner_first(self, start: Key) -> None:
        """Depth first without recursion: a chain of workflows may be longer than the stack."""
        path: dict[Key, None] = {}
        waiting: list[tuple[Key, bool]] = [(start, False)]
        while waiting:
            key, back = waiting.pop()
            if back:
                path.popitem()
                self.done[key] = self._filled(key)
                continue
            if key in self.done:
                continue
            path[key] = None
            waiting.append((key, True))
            for number, inner in list(self._meant[key].items()):
                if inner in path:
                    way = list(path)
                    self._circle(key, number, way[way.index(inner) :])
                else:
                    waiting.append((inner, False))

    def _circle(self, key: Key, number: int, circle: list[Key]) -> None:
        del self._meant[key][number]
        node = self.known[key].nodes[number]
        way = " → ".join(name for _, name in (*circle, circle[0]))
        message = f"the workflow '{circle[0][1]}' stands within itself: {way}"
        fix = f"remove '{node.name}' here, or write what repeats as a `loop`"
        self.faults.append(codes.WITHIN_ITSELF.at(node.path_place or node.place, message, fix=fix))

    def _filled(self, key: Key) -> syntax.Workflow:
        workflow = self.known[key]
        nodes, size, deep = list(workflow.nodes), 0, 0
        for number, node in enumerate(workflow.nodes):
            inner = self._meant[key].get(number)
            more, within = (1, 0) if inner is None else self._size[inner]
            fault = self._too_large(workflow, node, size + more, within + 1) if inner is not None else None
            if fault is not None or inner in self._refused:
                self.faults += [] if fault is None else [fault]
                self._refused.add(key)
                break
            size, deep = size + more, max(deep, within + (inner is not None))
            nodes[number] = node if inner is None else replace(node, nested=self.done[inner])
        self._size[key] = size, deep
        return replace(workflow, nodes=tuple(nodes))

    def _too_large(self, workflow: syntax.Workflow, node: syntax.Node, size: int, deep: int) -> Diagnostic | None:
        place = node.path_place or node.place
        if deep > DEEPEST:
            message = f"workflows stand within one another more than {DEEPEST} deep here"
            return codes.UNUSABLE.at(place, message, fix="write the inner ones as one workflow")
        if size > MOST_NODES:
            message = f"'{workflow.name}' has more than {MOST_NODES:,} nodes with those of the workflows in it"
            return codes.UNUSABLE.at(place, message, fix="let fewer of them stand in it")
        return None
