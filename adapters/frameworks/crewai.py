"""CrewAI: tasks of crews and methods of flows as steps, delegation as sub-agents, tools as pauses.

    llm = kvpolicy.annotate(LLM(...))                    # its calls say which agent makes them
    with watch(crew, service, session="s1"):
        crew.kickoff()

What CrewAI's hooks say, they say in the thread or task that goes on to make the call, so it stands in a ContextVar.
Its event bus calls from threads of its own, in no order, and is not used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

from crewai.hooks import InterceptionPoint, get_hooks, register_hook

from kvpolicy.adapters.frameworks.at_work import at_work
from kvpolicy.adapters.frameworks.crewai_graph import graph, name_of
from kvpolicy.adapters.frameworks.quiet import quiet, tested
from kvpolicy.client.scope import sources
from kvpolicy.client.service import Service
from kvpolicy.runs import Run, current_run

__all__ = ["graph", "here", "watch"]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a thread or task is. outer: the branch around the one that a task began. inside: the agents that a tool's
    call has brought to work, where it is in one."""

    method: str | None = None
    agent: str | None = None
    branch: str | None = None
    outer: str | None = None
    inside: dict[str, None] | None = None


_place: ContextVar[_Place | None] = ContextVar("kvpolicy_crewai", default=None)


def here() -> Mapping[str, Any] | None:
    """The flow's method and the agent that ask; None outside of both."""
    place = _place.get()
    if place is None:
        return None
    return {"node": place.method or place.agent, "agent": place.agent or place.method, "branch": place.branch}


sources.append(here)


def _told(event: str, node: str | None, agent: str | None, **facts: str) -> None:
    run, place = current_run(), _place.get() or _Place()
    if run is not None:
        stated = {"node": node, "agent": agent, "branch": place.branch}
        run.event(event, **{key: each for key, each in stated.items() if each}, **facts)


def _own(agent: str | None, task: Any) -> str:
    return f"{agent}-{str(task.id)[:8]}"


def _begins(agent: str | None, task: Any) -> bool:
    """A task goes on from here. Whether another of this role is at work in the run, in another crew."""
    run = current_run()
    return run is not None and at_work(run).begins(agent, task.id)[1]


def _over(tasks: Iterable[Any]) -> None:
    """They go on no more, if they did."""
    run = current_run()
    if run is not None:
        at_work(run).ends(*(task.id for task in tasks))


@quiet
def _before_step(context: Any) -> None:
    """A task or a flow's method begins. In a method, a crew's tasks are no steps of the flow's graph."""
    place = _place.get() or _Place()
    if context.kind == "flow_method":
        _place.set(_Place(method=str(context.step_name)))
        _told("step_start", str(context.step_name), str(context.step_name))
        return
    agent, task = name_of(context.agent), context.task
    branch = _own(agent, task) if _begins(agent, task) or getattr(task, "async_execution", False) else place.branch
    _place.set(replace(place, agent=agent, branch=branch, outer=place.branch))
    if branch != place.branch:
        _told("branch_start", agent, agent)
    if place.method is None:
        _told("step_start", agent, agent)


@quiet
def _after_step(context: Any) -> None:
    """It ended. One that fails is not said: it is at work until its crew ends, and its step until the run does."""
    if context.kind == "flow_method":
        _told("step_end", str(context.step_name), str(context.step_name))
        return
    agent, place = name_of(context.agent), _place.get() or _Place()
    if place.method is None:
        _told("step_end", agent, agent)
    _over([context.task])
    if place.branch is not None and place.branch == _own(agent, context.task):
        _told("branch_done", None, None)  # of all agents in it
        _place.set(replace(place, branch=place.outer))


@quiet
def _before_call(context: Any) -> None:
    """An agent asks; one that nobody has seen beginning was brought by a tool's call, or works alone."""
    agent, place = name_of(context.agent), _place.get() or _Place()
    if agent is None or agent == place.agent:
        return
    _place.set(replace(place, agent=agent))
    if place.inside is not None and agent not in place.inside:
        place.inside[agent] = None
        _told("step_start", agent, agent)


@quiet
def _before_tool(context: Any) -> None:
    """A tool begins. Where the model asks for it natively, its answer has told that, with the call's id."""
    agent = name_of(context.agent)
    native = getattr(getattr(context.agent, "llm", None), "supports_function_calling", None)
    if native is None or not native():
        _told("tool_call", None, agent, tool=str(context.tool_name))
    _place.set(replace(_place.get() or _Place(agent=agent), inside={}))


@quiet
def _after_tool(context: Any) -> None:
    """It returned, or failed, and so did whoever worked for it."""
    place, agent = _place.get() or _Place(), name_of(context.agent)
    for inner in place.inside or ():
        _told("step_end", inner, inner)
    _place.set(replace(place, agent=agent, inside=None))
    _told("tool_result", None, agent, tool=str(context.tool_name))


@quiet
def _after_all(context: Any) -> None:
    """A crew, a flow or an agent on its own is over: whoever asks next in this thread or task is not of it."""
    _over(getattr(context.crew, "tasks", ()))  # those that failed
    place = _place.get()
    if place is not None:
        _place.set(_Place(method=place.method) if place.method and context.flow is None else None)


_HOOKS = {
    InterceptionPoint.PRE_STEP: _before_step,
    InterceptionPoint.POST_STEP: _after_step,
    InterceptionPoint.PRE_MODEL_CALL: _before_call,
    InterceptionPoint.PRE_TOOL_CALL: _before_tool,
    InterceptionPoint.POST_TOOL_CALL: _after_tool,
    InterceptionPoint.EXECUTION_END: _after_all,
}


@quiet
def _hook() -> None:
    """Register what is not registered, or was cleared."""
    for point, hook in _HOOKS.items():
        if hook not in get_hooks(point):
            register_hook(point, hook)


_hook()


def watch(of: Any, service: Service, *, session: str | None = None, workflow: str | None = None) -> Run:
    """The run of a crew or a flow, to be entered around its kickoff (`kickoff`, `kickoff_async`, `akickoff`, …). Its
    graph is told to the service. session: by default a new one. workflow: the graph's name there, by default its own.
    """
    tested("crewai", (1, 15), (2, 0))
    _hook()
    name = quiet(lambda: service.describe(graph(of), workflow))()
    return service.run(name, session=session)
