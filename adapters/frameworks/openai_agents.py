"""OpenAI's Agents SDK: agents as steps, handoffs as their edges, tools as pauses, agents that tools ask as sub-agents.

    client = kvpolicy.annotate(AsyncOpenAI(...))         # its calls say who makes them
    async with watch(agent, service, session="s1") as hooks:
        await Runner.run(agent, "…", hooks=hooks)

The SDK calls hooks in tasks of their own, so what they learn stands in a cell that the run's context holds; there is
one agent at a time in a run. What a tool runs is a run within it, with hooks and a cell of its own
(`openai_agents_within`).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, Self

from agents import RunHooks

from kvpolicy.adapters.frameworks.at_work import at_work
from kvpolicy.adapters.frameworks.openai_agents_graph import graph
from kvpolicy.adapters.frameworks.quiet import quiet, tested
from kvpolicy.client.scope import sources
from kvpolicy.client.service import Service
from kvpolicy.runs import Run

__all__ = ["Hooks", "Steps", "graph", "here", "watch"]


class Steps(RunHooks[Any]):
    """The hooks of one run of the SDK, and who runs now in it. run: where its events go. branch: which of several that
    go on side by side it is; outer: the branch around that."""

    def __init__(self, run: Run, agent: str, branch: str | None = None, outer: str | None = None) -> None:
        self.run = run
        self.agent = agent
        self.branch = branch
        self.outer = outer
        self.key = object()  # with a name: of who is at work in it
        self.held: str | None = None  # who is at work to its end, whoever goes on
        self.open: str | None = None

    def where(self) -> dict[str, Any]:
        """What LLM calls of it say."""
        return {"node": self.agent, "agent": self.agent, "branch": self.branch, "parent": self.outer}

    def _told(self, event: str, agent: str, **facts: Any) -> None:
        branch = {} if self.branch is None else {"branch": self.branch}
        self.run.event(event, agent=agent, **branch, **facts)

    @quiet
    async def on_agent_start(self, context: Any, agent: Any) -> None:
        """An agent's step begins."""
        self.end_step()
        self.agent = self.open = agent.name
        at_work(self.run).begins(self.agent, (self.key, self.agent))
        self._told("step_start", self.agent, node=self.agent)

    @quiet
    async def on_llm_start(self, context: Any, agent: Any, system_prompt: Any, input_items: Any) -> None:
        """Whose call it is."""
        self.agent = agent.name

    @quiet
    async def on_agent_end(self, context: Any, agent: Any, output: Any) -> None:
        """Its final output is there."""
        self.end_step()

    @quiet
    async def on_handoff(self, context: Any, from_agent: Any, to_agent: Any) -> None:
        """Another agent goes on. The handoff was a tool's call, which nobody else sees returning."""
        self._told("tool_result", from_agent.name)
        self.end_step()

    @quiet
    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        """A tool begins, under the model's own call id."""
        self._told("tool_call", agent.name, **_call(context, tool))

    @quiet
    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: object) -> None:
        """It returned."""
        self._told("tool_result", agent.name, **_call(context, tool))

    @quiet
    def end_step(self) -> None:
        """Whoever runs in it has ended."""
        if self.open is not None:
            ended, self.open = self.open, None
            if ended != self.held:
                at_work(self.run).ends((self.key, ended))
            self._told("step_end", ended, node=ended)


def _call(context: Any, tool: Any) -> dict[str, Any]:
    call = getattr(context, "tool_call_id", None)
    facts = {"tool": getattr(tool, "name", None) or "tool"}
    return {**facts, "call": call} if isinstance(call, str) else facts


now: ContextVar[Steps | None] = ContextVar("kvpolicy_openai_agents", default=None)


def here() -> Mapping[str, Any] | None:
    """The agent of the run that this task is in; None outside of one."""
    steps = now.get()
    return None if steps is None else steps.where()


sources.append(here)


class Hooks(Steps):
    """The run's hooks, and the context that it runs in (`with` or `async with`). Good for one run at a time."""

    def __init__(self, run: Run, first: str) -> None:
        super().__init__(run, first)
        self._first = first
        self._place: Token[Steps | None] | None = None

    def __enter__(self) -> Self:
        self.run.__enter__()
        self.agent = self._first
        self._place = now.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end_step()
        if self._place is not None:
            with suppress(ValueError, RuntimeError):  # left in another context than it was entered in, or twice
                now.reset(self._place)
        self.run.__exit__(kind, fault, trace)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, fault, trace)


def watch(agent: Any, service: Service, *, session: str | None = None, workflow: str | None = None) -> Hooks:
    """The hooks of one run that begins with `agent`, to be entered around it: `async with watch(…) as hooks`. Its graph
    of handoffs is told to the service. session: by default a new one."""
    from kvpolicy.adapters.frameworks.openai_agents_within import follow

    tested("openai-agents", (0, 20), (1, 0))
    quiet(follow)()
    name = quiet(lambda: service.describe({**graph(agent), "name": workflow or f"{agent.name}-handoffs"}))()
    return Hooks(service.run(name, session=session), str(agent.name))
