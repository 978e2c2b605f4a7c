"""The graphs of CrewAI: a crew's agents in the order of their tasks, a flow's methods by what each listens to.

Made by `watch` and by the entry point `kvpolicy.workflows`; read by the service and by `kvpolicy.Engine`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from crewai import Crew, Flow, Process
from crewai.tasks.conditional_task import ConditionalTask

from kvpolicy.adapters.frameworks.shape import END, closed

MANAGER = "Crew Manager"  # the role of a manager that CrewAI makes itself


def name_of(agent: Any) -> str | None:
    """An agent's role as it was written, before inputs were put into it; None for what has no role."""
    role = getattr(agent, "_original_role", None) or getattr(agent, "role", None)
    return " ".join(str(role).split()) if role else None


def graph(of: Any) -> dict[str, Any]:
    """A crew or a flow as a workflow. Of a crew: the agents in the order of their tasks; tasks with `async_execution`
    are taken together, and what follows waits for all; a conditional task may be passed over; with a manager, the
    others are called by it. Of a flow: methods, routers' events as alternatives, `and_` as AND joins."""
    return _of_crew(of) if isinstance(of, Crew) else _of_flow(of)


class _Drawing:
    """Nodes, edges and joins as they are found."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.nodes: dict[str, str | None] = {}
        self.barriers: dict[str, str] = {}  # with how they wait
        self.edges: dict[tuple[str, str], str | None] = {}  # with what they are taken together by
        self.begins: list[str] = []
        self.joins: list[str] = []

    def edge(self, source: str, target: str, group: str | None = None) -> None:
        self.edges.setdefault((source, target), group)

    def barrier(self, name: str, starts: Sequence[tuple[str, str | None]], wait: str = "and") -> str:
        self.nodes[name], self.barriers[name] = None, wait
        for source, group in starts:
            self.edge(source, name, group)
        return name

    def document(self) -> dict[str, Any]:
        groups = {edge: group for edge, group in self.edges.items() if group is not None}
        return closed(self.name, self.nodes, self.edges, self.begins, self.joins, groups=groups, barriers=self.barriers)


def _of_crew(crew: Any) -> dict[str, Any]:
    drawing = _Drawing(" ".join(str(crew.name or "crew").split()))
    if crew.process == Process.hierarchical:
        manager = name_of(crew.manager_agent) or MANAGER
        others = (name for name in map(name_of, crew.agents) if name and name != manager)
        drawing.nodes = {manager: None, **dict.fromkeys(others, manager)}
        drawing.edge(manager, END)
        return drawing.document()
    done = [name_of(task.agent) or "agent" for task in crew.tasks]
    drawing.nodes = dict.fromkeys(done)
    ways: list[str] = []  # what the next one follows: one of them, or all with `waits`
    together: list[str] = []  # tasks that run on the side
    waits = False

    def gather() -> tuple[list[str], bool]:
        for source in ways:
            for node in together:
                drawing.edge(source, node, source if len(together) > 1 else None)
        drawing.begins += [] if ways else together
        return together, len(together) > 1

    for task, node in zip(crew.tasks, done, strict=True):
        if task.async_execution:
            together = list(dict.fromkeys([*together, node]))
            continue
        if together:
            (ways, waits), together = gather(), []
        passed = isinstance(task, ConditionalTask)
        if waits and (passed or done.count(node) > 1):
            ways = [drawing.barrier(f"before {node}", [(source, None) for source in ways])]
        elif waits:
            drawing.joins.append(node)
        for source in ways:
            drawing.edge(source, node)
        drawing.begins += [] if ways else [node]
        ways, waits = [*ways, node] if passed else [node], False
    if together:
        ways, waits = gather()
    for source in ways:
        drawing.edge(source, END)
    return drawing.document()


def _of_flow(flow: Flow[Any] | type[Flow[Any]]) -> dict[str, Any]:
    definition = flow.flow_definition()
    methods = {str(name): method for name, method in definition.methods.items()}
    drawing = _Drawing(str(definition.name))
    drawing.nodes = dict.fromkeys(methods)
    events = {name: _events(method) for name, method in methods.items() if method.router}
    heard: set[str] = set()

    def starts(condition: Any, target: str) -> Iterator[tuple[str, str | None]]:
        """What triggers, each with what it is taken together by."""
        if isinstance(condition, str):
            heard.add(condition)
            if condition in methods and condition not in events:
                yield condition, condition
            for router, said in events.items():
                if condition in said or condition == router or (not said and condition not in methods):
                    yield router, f"{router} {condition}"
            return
        wait, parts = next(iter(condition.items()))
        for number, part in enumerate(parts):
            found = list(starts(part, f"{target}.{number + 1}"))
            inner = "and" if isinstance(part, dict) and "and" in part else "or"
            if inner != wait and len(found) > 1:
                yield drawing.barrier(f"{target}.{number + 1}", found, inner), None
            else:
                yield from found

    for name, method in methods.items():
        condition = method.listen if method.listen is not None else method.start
        if isinstance(condition, str | dict):
            for source, group in starts(condition, name):
                drawing.edge(source, name, group)
            drawing.joins += [name] if isinstance(condition, dict) and "and" in condition else []
    for name in methods:
        said = events.get(name, [name])
        if not said or not heard.issuperset(said):
            drawing.edge(name, END)
    sure = [name for name, method in methods.items() if method.start is True]
    drawing.begins = sure or [name for name, method in methods.items() if method.start]
    return drawing.document()


def _events(method: Any) -> list[str]:
    """What a router says that it may answer; none where it says nothing."""
    return [str(each) for each in (method.human_feedback and method.human_feedback.emit) or method.emit or ()]
