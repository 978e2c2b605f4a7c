"""OpenAI's Agents SDK: agents as steps, handoffs as their edges, tools as pauses, agents that tools ask as sub-agents.

    client = kvpolicy.annotate(AsyncOpenAI(...))         # its calls say who makes them
    async with watch(agent, service, session="s1") as hooks:
        await Runner.run(agent, "…", hooks=hooks)

The SDK calls hooks in tasks of their own, so what they learn stands in a cell that the run's context holds; there is
one agent at a time in a run. What a tool runs is a run within it, with hooks and a cell of its own
(`openai_agents_within`).
"""

from __future__ import annotations

from contextlib import suppress
from contextvars import Token
from types import TracebackType
from typing import Any, Self

from kvpolicy.adapters.frameworks.openai_agents_graph import graph
from kvpolicy.adapters.frameworks.openai_agents_steps import Steps, here, now
from kvpolicy.adapters.frameworks.openai_agents_within import follow
from kvpolicy.adapters.frameworks.quiet import quiet, tested
from kvpolicy.client.service import Service
from kvpolicy.runs import Run

__all__ = ["Hooks", "graph", "here", "watch"]


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
    tested("openai-agents", (0, 20), (1, 0))
    quiet(follow)()
    name = quiet(lambda: service.describe({**graph(agent), "name": workflow or f"{agent.name}-handoffs"}))()
    return Hooks(service.run(name, session=session), str(agent.name))
