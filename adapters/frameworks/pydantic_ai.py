"""pydantic-ai: agents as steps, their tools as pauses, by one capability.

    client = kvpolicy.annotate(AsyncOpenAI(...))        # its calls say who makes them
    agent = Agent(model, name="writer", capabilities=[watch(service)])

Everything happens in the tasks that the framework runs its own hooks in, so runs within runs (an agent that a tool
calls) are where they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from pydantic_ai.capabilities import AbstractCapability

from kvpolicy.adapters.frameworks.at_work import at_work
from kvpolicy.adapters.frameworks.quiet import quiet, tested
from kvpolicy.client.here import branch, said, step
from kvpolicy.client.here import tool as pause
from kvpolicy.client.service import Service
from kvpolicy.runs import current_run


@dataclass
class Watch(AbstractCapability[Any]):
    """The capability. session: of all runs; by default a conversation is a session, as pydantic-ai counts it."""

    service: Service
    session: str | None = None
    workflow: str | None = None

    async def wrap_run(self, ctx: Any, *, handler: Any) -> Any:
        """A run of an agent is a run of ours with one step; within another run it is a step of that, and a branch
        where one of its name is at work."""
        with ExitStack() as stack:
            self._enter(stack, ctx)
            return await handler()

    @quiet
    def _enter(self, stack: ExitStack, ctx: Any) -> None:
        run, name = current_run(), _name(ctx)
        if run is None:
            session = self.session or ctx.conversation_id
            run = self.service.run(self.workflow, session=session, run=ctx.run_id)
            stack.enter_context(run)
        team, key = at_work(run), object()
        number, beside = team.begins(name, key)
        stack.callback(team.ends, key)
        if beside:
            stack.enter_context(branch(f"{name}-{number}"))
        stack.enter_context(step(name))

    async def wrap_model_request(self, ctx: Any, *, request_context: Any, handler: Any) -> Any:
        """Its calls say the step."""
        with ExitStack() as stack:
            self._say(stack, ctx)
            return await handler(request_context)

    @quiet
    def _say(self, stack: ExitStack, ctx: Any) -> None:
        told: Mapping[str, Any] = {"node": _name(ctx), "agent": _name(ctx), "turn": ctx.run_step}
        stack.enter_context(said(**told))

    async def wrap_tool_execute(self, ctx: Any, *, call: Any, tool_def: Any, args: Any, handler: Any) -> Any:
        """A tool's pause, under the model's own call id."""
        with ExitStack() as stack:
            self._pause(stack, call)
            return await handler(args)

    @quiet
    def _pause(self, stack: ExitStack, call: Any) -> None:
        stack.enter_context(pause(call.tool_name, call=call.tool_call_id))


def _name(ctx: Any) -> str:
    return str(getattr(ctx.agent, "name", None) or "agent")


def watch(service: Service, *, session: str | None = None, workflow: str | None = None) -> Watch:
    """The capability that tells a service of every run of the agents that have it. session: by default each
    conversation its own. workflow: the name of one that the service knows."""
    tested("pydantic-ai-slim", (2, 0), (3, 0))
    return Watch(service, session, workflow)
