"""OpenAI's Agents SDK: who runs now in one run of it, which its hooks tell, and what LLM calls say of it.

Used by `openai_agents`, of the run that is watched, and by `openai_agents_within`, of those within it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

from agents import RunHooks

from kvpolicy.adapters.frameworks.at_work import at_work
from kvpolicy.adapters.frameworks.quiet import quiet
from kvpolicy.client.scope import sources
from kvpolicy.runs import Run


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
