"""LangGraph: nodes as steps, `Send` as branches, tools as pauses, and the compiled graph as a workflow.

    app = watch(builder.compile(), service)     # the same graph; use it as before
    llm = kvpolicy.annotate(ChatOpenAI(...))    # its calls say node, step and branch

Importing it adds what LangGraph knows at the moment of a call (`client.scope.sources`), so that annotated clients say
node, step and thread even in graphs that nobody watches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.runnables.config import var_child_runnable_config

from kvpolicy.adapters.frameworks.quiet import quiet, tested
from kvpolicy.adapters.frameworks.shape import END, closed
from kvpolicy.client.scope import sources
from kvpolicy.client.service import Service
from kvpolicy.runs import Run
from kvpolicy.workflow.graph import NESTED

START = "__start__"
_MOST = 10_000  # tasks and tools that are remembered as running
_PUSHED = "__pregel_push"


@dataclass(frozen=True, slots=True)
class _Task:
    """A node's run. place: what LLM calls in it say."""

    run: Run
    space: str
    place: Mapping[str, Any]
    branch: str | None


_places: dict[str, Mapping[str, Any]] = {}  # by checkpoint namespace, which is a task's own


def here() -> Mapping[str, Any] | None:
    """What LangGraph knows of the code that asks; None outside of a node."""
    config = var_child_runnable_config.get()
    metadata = config.get("metadata") if config else None
    if not metadata or "langgraph_node" not in metadata:
        return None
    space = metadata.get("langgraph_checkpoint_ns", "")
    known = _places.get(space)
    if known is not None:
        return known
    thread = metadata.get("thread_id")
    node = _node(metadata)
    told = {
        "session": None if thread is None else str(thread),
        "node": node,
        "agent": node,
        "branch": _branch(metadata),
    }
    return {**told, "turn": metadata.get("langgraph_step")}


sources.append(here)


def _node(metadata: Mapping[str, Any]) -> str:
    """The node's name, behind those of the graphs around it."""
    parts = [part.partition(":")[0] for part in str(metadata.get("langgraph_checkpoint_ns", "")).split("|")]
    return NESTED.join([*parts[:-1], str(metadata["langgraph_node"])])


def _branch(metadata: Mapping[str, Any]) -> str | None:
    """A task made by `Send` is a branch: its node and its number among those of one step."""
    path = metadata.get("langgraph_path") or ()
    if len(path) < 2 or path[0] != _PUSHED or not isinstance(path[1], int):
        return None
    return f"{metadata['langgraph_node']}-{path[1]}"


class Handler(BaseCallbackHandler):
    """Callbacks of one watched graph. Inline, so that events stand in the order in which things happen."""

    run_inline = True

    def __init__(self, service: Service, workflow: str | None = None) -> None:
        self._service, self._workflow = service, workflow
        self._lock = Lock()
        self._runs: dict[UUID, Run] = {}  # by the run id of the outermost graph
        self._roots: dict[UUID, UUID] = {}  # run id -> outermost
        self._tasks: dict[UUID, _Task] = {}
        self._tools: dict[UUID, tuple[Run, Mapping[str, Any]]] = {}

    @quiet
    def on_chain_start(
        self, serialized: Any, inputs: Any, *, run_id: UUID, parent_run_id: UUID | None = None,
        tags: Any = None, metadata: Any = None, **more: Any,
    ) -> None:  # fmt: skip
        """A graph, a node, or something inside of one, begins."""
        metadata = metadata or {}
        if parent_run_id is None or parent_run_id not in self._roots:
            self._begin(run_id, metadata)
            return
        with self._lock:
            root = self._roots[run_id] = self._roots[parent_run_id]
            _bound(self._roots)
        run = self._runs[root]
        if more.get("name") != metadata.get("langgraph_node") or not any(
            str(tag).startswith("graph:step:") for tag in tags or ()
        ):
            return
        node, branch, space = _node(metadata), _branch(metadata), metadata.get("langgraph_checkpoint_ns", "")
        owner = run.owner
        place = {
            "session": owner.session, "run": owner.run, "workflow": self._workflow, "node": node, "agent": node,
            "branch": branch, "turn": metadata.get("langgraph_step"),
        }  # fmt: skip
        with self._lock:
            self._tasks[run_id] = _Task(run, space, place, branch)
            _places[space] = place
            _bound(self._tasks)
            _bound(_places)
        facts = {} if branch is None else {"branch": branch}
        if branch is not None:
            run.event("branch_start", node=node, agent=node, **facts)
        run.event("step_start", node=node, agent=node, **facts)

    def _begin(self, run_id: UUID, metadata: Mapping[str, Any]) -> None:
        thread = metadata.get("thread_id")
        run = self._service.run(self._workflow, session=None if thread is None else str(thread), run=str(run_id))
        with self._lock:
            self._roots[run_id] = run_id
            self._runs[run_id] = run
            _bound(self._runs)
        run.event("workflow_start")

    @quiet
    def on_chain_end(self, outputs: Any, *, run_id: UUID, **more: Any) -> None:
        """It ended, or was interrupted: either way nothing of it runs."""
        with self._lock:
            task, run = self._tasks.pop(run_id, None), self._runs.pop(run_id, None)
            self._roots.pop(run_id, None)
            if task is not None:
                _places.pop(task.space, None)
        if task is not None:
            node, facts = task.place["node"], {} if task.branch is None else {"branch": task.branch}
            task.run.event("step_end", node=node, agent=node, **facts)
            if task.branch is not None:
                task.run.event("branch_done", node=node, agent=node, **facts)
        if run is not None:
            run.event("workflow_end")

    @quiet
    def on_chain_error(self, error: BaseException, *, run_id: UUID, **more: Any) -> None:
        """As an end."""
        self.on_chain_end(None, run_id=run_id)

    @quiet
    def on_tool_start(
        self, serialized: Any, input_str: str, *, run_id: UUID, parent_run_id: UUID | None = None,
        metadata: Any = None, **more: Any,
    ) -> None:  # fmt: skip
        """A tool begins. Its call id is the model's where LangChain passes that on."""
        if parent_run_id is None or parent_run_id not in self._roots:
            return
        root = self._roots[parent_run_id]
        run = self._runs[root]
        place = _places.get((metadata or {}).get("langgraph_checkpoint_ns", ""), {})
        name = (serialized or {}).get("name") or more.get("name") or "tool"
        facts = {"tool": name, "call": str(more.get("tool_call_id") or run_id)}
        with self._lock:
            self._tools[run_id] = (run, facts)
            self._roots[run_id] = root  # what runs inside of the tool is no run of its own
            _bound(self._tools)
            _bound(self._roots)
        run.event("tool_call", **facts, **{key: place[key] for key in ("branch",) if place.get(key)})

    @quiet
    def on_tool_end(self, output: Any, *, run_id: UUID, **more: Any) -> None:
        """It returned."""
        with self._lock:
            found = self._tools.pop(run_id, None)
            self._roots.pop(run_id, None)
        if found is not None:
            found[0].event("tool_result", **found[1])

    @quiet
    def on_tool_error(self, error: BaseException, *, run_id: UUID, **more: Any) -> None:
        """It failed, which is a result, too."""
        self.on_tool_end(None, run_id=run_id)


def _bound(table: dict[Any, Any]) -> None:
    while len(table) > _MOST:
        del table[next(iter(table))]


def watch(app: Any, service: Service, *, workflow: str | None = None) -> Any:
    """The compiled graph with callbacks bound to it: its runs, steps, branches and tools are told to the service, with
    its graph. workflow: the graph's name there, by default the compiled graph's. A thread (`thread_id`) is a session.
    """
    tested("langgraph", (1, 0), (2, 0))
    name = quiet(lambda: service.describe({**graph(app), "name": workflow or _name(app)}))()
    return app.with_config(callbacks=[Handler(service, name)])


def _name(app: Any) -> str:
    name = getattr(app, "name", None)
    return str(name) if name and name != "LangGraph" else "langgraph"


def graph(app: Any) -> dict[str, Any]:
    """The compiled graph as a workflow: subgraphs laid out (`outer/inner`), edges that lead back as loops, nodes that
    wait for all (`add_edge([a, b], c)`, `defer=True`) as AND joins, and the end as a barrier that any way reaches. A
    conditional edge that declares no targets may lead to every node of its graph."""
    drawn = app.get_graph(xray=True)
    names = list(drawn.nodes)
    edges = {(edge.source, edge.target): bool(edge.conditional) for edge in drawn.edges}
    for source, targets in _anywhere(app):
        edges |= {(source, target): True for target in targets if source in names and target in names}
    for inner in [name for name in names if name not in (START, END) and name.endswith((f":{START}", f":{END}"))]:
        edges = _without(inner, edges)
        names.remove(inner)
    named = {key: key.replace(":", NESTED) for key in names if key != START}
    begins = [named[target] for source, target in edges if source == START and target in named]
    kept = {(named[a], named[b]): guarded for (a, b), guarded in edges.items() if a in named and b in named}
    nodes: dict[str, str | None] = {name: None for key, name in named.items() if key != END}
    waiting = [named[node] for node in _waiting(app) if node in named]
    return closed(_name(app), nodes, kept, begins, waiting, {edge for edge, guarded in kept.items() if not guarded})


def _without(node: str, edges: Mapping[tuple[str, str], bool]) -> dict[tuple[str, str], bool]:
    """The edges with those through a node, which is no step, in one."""
    into = [(source, guarded) for (source, target), guarded in edges.items() if target == node]
    onward = [(target, guarded) for (source, target), guarded in edges.items() if source == node]
    through = {(a, b): one or other for a, one in into for b, other in onward}
    return {edge: guarded for edge, guarded in edges.items() if node not in edge} | through


def _graphs(app: Any, prefix: str = "") -> Iterable[tuple[str, Any]]:
    """The builders of a graph and of those in it, each with what stands before its nodes' names."""
    builder = getattr(app, "builder", None)
    if builder is not None:
        yield prefix, builder
    for name, inner in getattr(app, "get_subgraphs", tuple)():
        yield from _graphs(inner, f"{prefix}{name}:")


def _waiting(app: Any) -> Iterable[str]:
    """Nodes that wait for all."""
    for prefix, builder in _graphs(app):
        yield from (prefix + end for starts, end in getattr(builder, "waiting_edges", ()) if len(starts) > 1)
        yield from (prefix + name for name, spec in builder.nodes.items() if getattr(spec, "defer", False))


def _anywhere(app: Any) -> Iterable[tuple[str, list[str]]]:
    """Nodes with a conditional edge that declares no targets, and all that it may lead to."""
    for prefix, builder in _graphs(app):
        for source, branches in getattr(builder, "branches", {}).items():
            if any(getattr(branch, "ends", True) is None for branch in branches.values()):
                yield prefix + source, [prefix + name for name in (*builder.nodes, END) if name != source]
