"""OpenAI's Agents SDK: runs within a watched run, such as agents that are tools of another, each with hooks of its own.

Hooks are given to one run alone, and what a tool runs is another. So `Runner` is followed from the first `watch` on: a
run that begins where a watched one is gets hooks that tell the same of it, beside those that it was given.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from agents import RunHooks, Runner
from agents.lifecycle import RunHooksBase

from kvpolicy.adapters.frameworks.at_work import at_work
from kvpolicy.adapters.frameworks.openai_agents_steps import Steps, now
from kvpolicy.adapters.frameworks.quiet import quiet
from kvpolicy.workflow.graph import NESTED


class InnerSteps(Steps):
    """The hooks of a run within another. It is in the branch around it; at work beside another of its name it is one
    of its own."""

    def __init__(self, outer: Steps, agent: str) -> None:
        super().__init__(outer.run, agent, outer.branch, outer.outer)
        self.held = agent
        number, self._beside = at_work(self.run).begins(agent, (self.key, agent))
        if self._beside:
            self.branch = NESTED.join(part for part in (outer.branch, f"{agent}-{number}") if part)
            self.outer = outer.branch
            parent = {} if self.outer is None else {"parent": self.outer}
            self._told("branch_start", agent, node=agent, **parent)

    @quiet
    async def on_agent_end(self, context: Any, agent: Any, output: Any) -> None:
        """Its final output is there."""
        self.over()

    @quiet
    def over(self) -> None:
        """It has ended, however: said once."""
        self.end_step()
        at_work(self.run).ends((self.key, self.held))
        if self._beside:
            self._beside = False
            self.run.event("branch_done", branch=self.branch)  # of all agents in it


class Both(RunHooks[Any]):
    """Our hooks, then the application's."""

    def __init__(self, ours: Any, theirs: Any) -> None:
        self.ours, self.theirs = ours, theirs


def _both(name: str) -> Any:
    async def called(self: Both, *args: Any, **named: Any) -> None:
        await getattr(self.ours, name)(*args, **named)
        await getattr(self.theirs, name)(*args, **named)

    return called


for _name in dir(RunHooksBase):
    if _name.startswith("on_"):
        setattr(Both, _name, _both(_name))


@quiet
def _begun(args: tuple[Any, ...], named: dict[str, Any]) -> InnerSteps | None:
    """The hooks of a run that begins here, which it is given; None where it is the watched one, or nobody watches."""
    outer, given = now.get(), named.get("hooks")
    if outer is None or (given is outer and outer.open is None):
        return None
    if given is not None and given is not outer and (isinstance(given, Steps) or not isinstance(given, RunHooksBase)):
        return None
    agent = named["starting_agent"] if "starting_agent" in named else args[0]
    inner = InnerSteps(outer, str(agent.name))
    named["hooks"] = inner if given is None or given is outer else Both(inner, given)
    return inner


@contextmanager
def _within(args: tuple[Any, ...], named: dict[str, Any], *, streamed: bool = False) -> Iterator[InnerSteps | None]:
    """A run that begins in here is within the one that is here. streamed: it goes on when this is left."""
    inner = _begun(args, named)
    if inner is None:
        try:
            yield None
        except BaseException:
            _failed(named)
            raise
        return
    place, failed = now.set(inner), True
    try:
        yield inner
        failed = False
    finally:
        now.reset(place)
        if failed or not streamed:
            inner.over()


@quiet
def _failed(named: dict[str, Any]) -> None:
    """A run under the watched hooks themselves failed: its agent is at work no more, and another may begin there."""
    if isinstance(named.get("hooks"), Steps):
        named["hooks"].end_step()


@quiet
def _over_with(inner: InnerSteps | None, named: dict[str, Any], result: Any) -> None:
    """A streamed run is over with the SDK's own task for it, however that ends, and whether anybody reads it or not."""

    @quiet
    def over(_: Any) -> None:
        if inner is not None:
            inner.over()
        elif result.final_output is None and not result.interruptions:  # failed, or was cancelled
            _failed(named)

    if inner is not None or isinstance(named.get("hooks"), Steps):
        result.run_loop_task.add_done_callback(over)


def follow() -> None:
    """From now on `Runner` looks where it is called.

    # INVARIANT: it takes, returns and raises what it did before.
    """
    run, run_sync, run_streamed = (getattr(Runner, name).__func__ for name in ("run", "run_sync", "run_streamed"))
    if getattr(run, "of_kvpolicy", False):
        return

    @functools.wraps(run)
    async def awaited(cls: Any, *args: Any, **named: Any) -> Any:
        with _within(args, named):
            return await run(cls, *args, **named)

    @functools.wraps(run_sync)
    def called(cls: Any, *args: Any, **named: Any) -> Any:
        with _within(args, named):
            return run_sync(cls, *args, **named)

    @functools.wraps(run_streamed)
    def streamed(cls: Any, *args: Any, **named: Any) -> Any:
        with _within(args, named, streamed=True) as inner:
            result = run_streamed(cls, *args, **named)
            _over_with(inner, named, result)
            return result

    awaited.of_kvpolicy = True  # type: ignore[attr-defined]
    for name, followed in (("run", awaited), ("run_sync", called), ("run_streamed", streamed)):
        setattr(Runner, name, classmethod(followed))
