"""LangGraph: nodes as steps, `Send` as branches, tools as pauses, and the compiled graph as a workflow.

    app = watch(builder.compile(), service)     # the same graph; use it as before
    llm = kvpolicy.annotate(ChatOpenAI(...))    # its calls say node, step and branch

Importing it adds what LangGraph knows at the moment of a call (`client.scope.sources`), so that annotated clients say
node, step and thread even in graphs that nobody watches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.runnables.config import var_child_runnable_config

from kvpolicy.adapters.frameworks.langgraph_graph import graph, name_of
from kvpolicy.adapters.frameworks.quiet import quiet, tested
from kvpolicy.client.scope import sources
from kvpolicy.client.service import Service
from kvpolicy.runs import Run
from kvpolicy.workflow.graph import NESTED

__all__ = ["Handler", "graph", "here", "watch"]

_MOST = 10_000  # tasks and tools that are remembered as running
_PUSHED = "__pregel_push"
_GRAPHS, _TASK = "|", ":"  # of a checkpoint's namespace: graphs within tasks, a node and its task's id


@dataclass(frozen=True, slots=True)
class _Task:
    """A node's run. place: what LLM calls in it say. sent: it was made by `Send`, which began its branch."""

    run: Run
    space: str
    place: Mapping[str, Any]
    sent: bool


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
    told = {"session": None if thread is None else str(thread), "turn": metadata.get("langgraph_step")}
    return {**told, **_where(metadata)}


sources.append(here)


def _where(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """A task's node, behind those of the graphs around it, and its branch.

    A task made by `Send` is a branch: its node and its number among those of one step. What runs in graphs within a
    task is in its branch; the second graph that one task runs, and any further, in one of its own (`tools+1`).
    """
    name, space = str(metadata["langgraph_node"]), str(metadata.get("langgraph_checkpoint_ns", ""))
    *around, _ = space.split(_GRAPHS)
    number = around.pop() if around and _TASK not in around[-1] else None
    node = NESTED.join([*(part.partition(_TASK)[0] for part in around if _TASK in part), name])
    outer = _places.get(_GRAPHS.join(around), {}).get("branch")
    again = f"{around[-1].partition(_TASK)[0]}+{number}" if number and around else None
    own = (again, f"{name}-{metadata['langgraph_path'][1]}" if _sent(metadata) else None)
    branch = NESTED.join(part for part in (outer, *own) if part) or None
    return {"node": node, "agent": node, "branch": branch, "parent": None if branch == outer else outer}


def _sent(metadata: Mapping[str, Any]) -> bool:
    path = metadata.get("langgraph_path") or ()
    return len(path) > 1 and path[0] == _PUSHED and isinstance(path[1], int)


def _stated(place: Mapping[str, Any], *fields: str) -> dict[str, Any]:
    return {field: place[field] for field in fields if place.get(field)}


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
        space, sent, owner = metadata.get("langgraph_checkpoint_ns", ""), _sent(metadata), run.owner
        said = {"session": owner.session, "run": owner.run, "workflow": self._workflow}
        place = {**said, "turn": metadata.get("langgraph_step"), **_where(metadata)}
        with self._lock:
            self._tasks[run_id] = _Task(run, space, place, sent)
            _places[space] = place
            _bound(self._tasks)
            _bound(_places)
        if sent:
            run.event("branch_start", **_stated(place, "node", "agent", "branch", "parent"))
        run.event("step_start", **_stated(place, "node", "agent", "branch"))

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
            task.run.event("step_end", **_stated(task.place, "node", "agent", "branch"))
            if task.sent:  # of all agents in it
                task.run.event("branch_done", **_stated(task.place, "branch"))
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
        """A tool begins. One that the model asked for has its call id: its answer has told that, and whose it is.
        Others are called by the node that they stand in."""
        if parent_run_id is None or parent_run_id not in self._roots:
            return
        root, call = self._roots[parent_run_id], more.get("tool_call_id")
        run = self._runs[root]
        facts = {"tool": (serialized or {}).get("name") or more.get("name") or "tool", "call": str(call or run_id)}
        if call is None:
            facts |= _stated(_places.get((metadata or {}).get("langgraph_checkpoint_ns", ""), {}), "agent", "branch")
        with self._lock:
            self._tools[run_id] = (run, facts)
            self._roots[run_id] = root  # what runs inside of the tool is no run of its own
            _bound(self._tools)
            _bound(self._roots)
        if call is None:
            run.event("tool_call", **facts)

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
    name = quiet(lambda: service.describe({**graph(app), "name": workflow or name_of(app)}))()
    return app.with_config(callbacks=[Handler(service, name)])
