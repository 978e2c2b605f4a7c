"""OpenAI's Agents SDK: agents as steps, handoffs as their edges, tools as pauses.

    client = kvpolicy.annotate(AsyncOpenAI(...))         # its calls say who makes them
    async with watch(agent, service, session="s1") as hooks:
        await Runner.run(agent, "…", hooks=hooks)

The SDK calls hooks in tasks of their own, so what they learn stands in a cell that the run's context holds; there is
one agent at a time in a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, Self

from agents import Handoff, RunHooks

from kvpolicy.adapters.frameworks.quiet import quiet, tested
from kvpolicy.adapters.frameworks.shape import END, closed
from kvpolicy.client.scope import sources
from kvpolicy.client.service import Service
from kvpolicy.runs import Run


class _Cell:
    """Who runs now, in one run."""

    __slots__ = ("agent",)

    def __init__(self, agent: str) -> None:
        self.agent = agent


_cell: ContextVar[_Cell | None] = ContextVar("kvpolicy_openai_agents", default=None)


def here() -> Mapping[str, Any] | None:
    """The agent of the run that this task is in; None outside of one."""
    cell = _cell.get()
    return None if cell is None else {"node": cell.agent, "agent": cell.agent}


sources.append(here)


class Hooks(RunHooks[Any]):
    """The run's hooks, and the context that it runs in (`with` or `async with`). Good for one run at a time."""

    def __init__(self, run: Run, first: str) -> None:
        self.run = run
        self._first = first
        self._now = _Cell(first)
        self._place: Token[_Cell | None] | None = None
        self._open: str | None = None

    def __enter__(self) -> Self:
        self.run.__enter__()
        self._now = _Cell(self._first)
        self._place = _cell.set(self._now)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end_step()
        if self._place is not None:
            with suppress(ValueError, RuntimeError):  # left in another context than it was entered in, or twice
                _cell.reset(self._place)
        self.run.__exit__(kind, fault, trace)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, fault, trace)

    @quiet
    async def on_agent_start(self, context: Any, agent: Any) -> None:
        """An agent's step begins."""
        self._end_step()
        self._now.agent = self._open = agent.name
        self.run.event("step_start", node=agent.name, agent=agent.name)

    @quiet
    async def on_llm_start(self, context: Any, agent: Any, system_prompt: Any, input_items: Any) -> None:
        """Whose call it is."""
        self._now.agent = agent.name

    @quiet
    async def on_agent_end(self, context: Any, agent: Any, output: Any) -> None:
        """Its final output is there."""
        self._end_step()

    @quiet
    async def on_handoff(self, context: Any, from_agent: Any, to_agent: Any) -> None:
        """Another agent goes on. The handoff was a tool's call, which nobody else sees returning."""
        self.run.event("tool_result", agent=from_agent.name)
        self._end_step()

    @quiet
    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        """A tool begins, under the model's own call id."""
        self.run.event("tool_call", **_call(context, agent, tool))

    @quiet
    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: object) -> None:
        """It returned."""
        self.run.event("tool_result", **_call(context, agent, tool))

    @quiet
    def _end_step(self) -> None:
        if self._open is not None:
            self.run.event("step_end", node=self._open, agent=self._open)
            self._open = None


def _call(context: Any, agent: Any, tool: Any) -> dict[str, Any]:
    call = getattr(context, "tool_call_id", None)
    facts = {"tool": getattr(tool, "name", None) or "tool", "agent": agent.name}
    return {**facts, "call": call} if isinstance(call, str) else facts


def watch(agent: Any, service: Service, *, session: str | None = None, workflow: str | None = None) -> Hooks:
    """The hooks of one run that begins with `agent`, to be entered around it: `async with watch(…) as hooks`. Its graph
    of handoffs is told to the service. session: by default a new one."""
    tested("openai-agents", (0, 20), (1, 0))
    name = quiet(lambda: service.describe({**graph(agent), "name": workflow or f"{agent.name}-handoffs"}))()
    return Hooks(service.run(name, session=session), str(agent.name))


def graph(agent: Any) -> dict[str, Any]:
    """What an agent may hand off to, and those in turn, as a workflow. Each agent may also end the run. Agents that are
    tools of another are called by it (`parent`), and so are those that such an agent hands off to: that is a run within
    the call, which ends where the call does."""
    begin = str(agent.name)
    handoffs: dict[str, list[str]] = {}
    callers: dict[str, str] = {}  # of each agent but the first: who led to it first
    waiting = [agent]
    while waiting:
        one = waiting.pop(0)
        name = str(one.name)
        if name in handoffs:
            continue
        handoffs[name] = []
        for target in getattr(one, "handoffs", ()):
            other = _agent_of(target)
            to = str(target.agent_name) if isinstance(target, Handoff) else str(target.name)
            handoffs[name].append(to)
            callers.setdefault(to, name)
            waiting += [] if other is None else [other]
        for tool in getattr(one, "tools", ()):
            inner = getattr(tool, "_agent_instance", None)
            if inner is not None:
                callers.setdefault(str(inner.name), name)
                waiting.append(inner)
    handed = [begin]  # those that the run itself comes to
    for name in handed:
        handed += [to for to in dict.fromkeys(handoffs.get(name, ())) if to not in handed]
    names = {name: None if name in handed else callers[name] for name in dict.fromkeys((begin, *callers))}
    edges = [(name, to) for name in handed for to in handoffs.get(name, ())]
    return closed(f"{agent.name}-handoffs", names, [*edges, *((name, END) for name in handed)], [begin])


def _agent_of(target: Any) -> Any:
    """The agent that a handoff leads to, where it can be reached."""
    if not isinstance(target, Handoff):
        return target
    reference = getattr(target, "_agent_ref", None)
    return None if reference is None else reference()
