"""LlamaIndex workflows: steps as steps, executions at once as branches, tools as pauses, agents by their handoffs.

    flow = watch(flow, service)                                   # the same workflow or agent; use it as before
    client = kvpolicy.annotate(AsyncOpenAI(...))                  # of its model: calls say step and branch

Everything but a run's `Context` comes from the framework's instrumentation. Its spans begin and end in the very task,
or thread, that a step runs in, so the contexts of our runs are entered and left there, and `kvpolicy.tool` and its kin
hold inside of steps.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

from llama_index_instrumentation import get_dispatcher
from llama_index_instrumentation.dispatcher import active_instrument_tags
from llama_index_instrumentation.span_handlers import BaseSpanHandler
from workflows import Workflow
from workflows.events import Event

from kvpolicy.adapters.frameworks import llama_index_sessions
from kvpolicy.adapters.frameworks.at_work import at_work
from kvpolicy.adapters.frameworks.llama_index_graph import agents_of, fanned, graph, loaded
from kvpolicy.adapters.frameworks.quiet import quiet, tested
from kvpolicy.client.scope import current, inside, leave
from kvpolicy.client.service import Service
from kvpolicy.runs import Run

__all__ = ["Handler", "graph", "watch"]

RUN, PART, TOOL = "run", "part", "tool"
_MOST = 10_000  # spans that are remembered as open


@dataclass(frozen=True, slots=True)
class _Watched:
    """What was asked for a workflow. name: its graph's; fans: steps that each execution of is a branch."""

    service: Service
    session: str | None
    name: str | None
    fans: frozenset[str]


@dataclass(slots=True)
class _Going:
    """A run. fans: steps that each execution of is a branch; agent: whose step is open, of agents."""

    run: Run
    fans: frozenset[str]
    of_agents: bool
    agent: str | None = None

    def hand_to(self, agent: str | None) -> None:
        """This agent's step goes on, or begins; None: nobody's."""
        if agent == self.agent:
            return
        if self.agent is not None:
            self.run.event("step_end", node=self.agent, agent=self.agent)
        if agent is not None:
            self.run.event("step_start", node=agent, agent=agent)
        self.agent = agent


@dataclass(frozen=True, slots=True)
class _Place:
    """What is open in a span. level: what it is, to the spans in it. left: closed with it."""

    going: _Going
    level: str
    left: ExitStack


_lock = Lock()
_watched: dict[int, tuple[weakref.ref[Any], _Watched]] = {}  # by the workflow's id
_open: dict[str, _Place] = {}  # by span id, the outermost first


class Handler(BaseSpanHandler[Any]):
    """The span handler, one in a process. Spans outside of watched workflows cost it a look at two tables."""

    @quiet
    def span_enter(
        self, id_: str, bound_args: Any, instance: Any = None, parent_id: str | None = None,
        tags: Mapping[str, Any] | None = None, **more: Any,
    ) -> None:  # fmt: skip
        """A workflow, a step, a tool, or something inside of one, begins."""
        outer, given = _open.get(parent_id or ""), bound_args.arguments
        begins = isinstance(instance, Workflow) and "init_state" in given
        asked = _watched.get(id(instance)) if begins else None
        if outer is None and asked is None:
            return
        with ExitStack() as left:
            if asked is not None:
                place = _Place(_begun(instance, asked[1], given.get("start_event"), left), RUN, left.pop_all())
            elif outer is not None:
                level = PART if outer.level == RUN else outer.level
                if not begins and outer.level == RUN and "llamaindex.step.input_event" in (tags or {}):
                    level = _stepped(outer.going, id_, given, left)
                elif level != TOOL and isinstance(instance, loaded("tools", "BaseTool")):
                    left.enter_context(outer.going.run.tool(str(instance.metadata.name or "tool")))
                    level = TOOL
                place = replace(outer, level=level, left=left.pop_all())
        with _lock:
            _open[id_] = place
            oldest = next(iter(_open)) if len(_open) > _MOST else None
        if oldest is not None:
            self.span_exit(oldest)  # with all that is in it: what was begun is ended

    @quiet
    def span_exit(self, id_: str, *given: Any, **more: Any) -> None:
        """It ended. What still runs in a workflow that did (a thread cannot be cancelled) ends with it."""
        with _lock:
            place = _open.pop(id_, None)
            ended = place.going if place is not None and place.level == RUN else None
            late = [] if ended is None else [key for key, one in _open.items() if one.going is ended]
            inner = [_open.pop(key) for key in late]
        for one in [*reversed(inner), *([place] if place else [])]:
            quiet(one.left.close)()  # each by itself: the run is ended whatever a step's end meets

    def span_drop(self, id_: str, *given: Any, **more: Any) -> None:
        """It failed, or was cancelled: an end, too."""
        self.span_exit(id_)

    def new_span(self, *given: Any, **more: Any) -> None:
        """Spans are kept in our own table."""

    prepare_to_exit_span = prepare_to_drop_span = new_span


def _begun(flow: Any, asked: _Watched, start: Any, left: ExitStack) -> _Going:
    """A run begins. Its session: what was asked, else what the code around says, else its memory's, else that of the
    runs before with its `Context`."""
    name = active_instrument_tags.get().get("llamaindex.run_id")
    memory = start.get("memory") if isinstance(start, Event) else None
    session = asked.session or current().session or getattr(memory, "session_id", None)
    run = asked.service.run(asked.name, session=session or llama_index_sessions.session_of(name), run=name)
    llama_index_sessions.remember(name, run.owner.session)
    going = _Going(run, asked.fans, agents_of(flow) is not None)
    left.enter_context(run)
    left.callback(going.hand_to, None)
    return going


def _stepped(going: _Going, id_: str, given: Mapping[str, Any], left: ExitStack) -> str:
    """A step begins; the level of what is in it. In a workflow of agents the one that the event is for is the step."""
    event: Any = next((value for value in given.values() if isinstance(value, Event)), None)
    if going.of_agents:
        going.hand_to(getattr(event, "current_agent_name", None) or going.agent)
        left.callback(leave, inside(node=going.agent, agent=going.agent))
    else:
        name = id_.rpartition(".")[2][: -len("-01234567-89ab-cdef-0123-456789abcdef")]
        number, beside = at_work(going.run).begins(name, id_)
        left.callback(at_work(going.run).ends, id_)
        if beside or name in going.fans:
            left.enter_context(going.run.branch(f"{name}-{number}"))
        left.enter_context(going.run.step(name))
    if not isinstance(event, loaded("agent.workflow", "ToolCall")):
        return PART
    left.enter_context(going.run.tool(event.tool_name, call=event.tool_id))
    return TOOL


_HANDLER = Handler()


def watch(flow: Any, service: Service, *, session: str | None = None, workflow: str | None = None) -> Any:
    """The same workflow, whose runs, steps, branches and tools are told to the service from now on, with its graph; of
    an `AgentWorkflow` or an agent, the agents and their handoffs. session: of all its runs; by default what
    `kvpolicy.said(session=…)` says around `run`, else the `session_id` of the memory that `run` is given, else that of
    the runs before with the same `Context`, else a new one. workflow: the graph's name there, by default that of its
    class, or the one it was given."""
    tested("llama-index-workflows", (2, 23), (3, 0))
    name = quiet(lambda: service.describe(graph(flow), workflow))()
    fans = frozenset() if agents_of(flow) else quiet(lambda: fanned(flow))()
    _register(flow, _Watched(service, session, name, fans or frozenset()))
    return flow


@quiet
def _register(flow: Any, asked: _Watched) -> None:
    key = id(flow)
    _watched[key] = (weakref.ref(flow, lambda _: _watched.pop(key, None)), asked)
    root = get_dispatcher()
    if not any(one is _HANDLER for one in root.span_handlers):
        root.add_span_handler(_HANDLER)
    llama_index_sessions.follow()
