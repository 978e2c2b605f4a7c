"""A run of a workflow as contexts: entering and leaving them tells an engine, or the service, what happened.

Made by `Engine.run` and `Service.run`. Every context is a `Told` (`client.told`). Where one is inside stands in a
ContextVar (`client.scope`), so runs, threads and tasks at once never mix.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar, Token
from dataclasses import replace
from itertools import count
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from kvpolicy.client.once import warn_once
from kvpolicy.client.scope import Scope, current, enter, leave
from kvpolicy.client.told import Told
from kvpolicy.faults import InputFault
from kvpolicy.request import Owner, Request, Span

if TYPE_CHECKING:  # the light ones stay light: an application that only tells a service loads no engine
    from kvpolicy.claims.answers import Answer
    from kvpolicy.steering import Outcome

_numbers = count(1)
_run: ContextVar[Run | None] = ContextVar("kvpolicy_run", default=None)


def current_run() -> Run | None:
    """The run that this thread or task is in; None outside of one."""
    return _run.get()


def resume_run(run: Run | None) -> None:
    """This thread or task is in it, or in none, from now on: of generators, which go on where they were."""
    _run.set(run)


class Hears(Protocol):
    """What a run needs of its engine or service."""

    def event(self, event: str, *, now: float | None = None, **attributes: object) -> list[Answer]: ...


class _Serves(Hears, Protocol):
    """An engine in this process, which takes requests, too."""

    block_size: int

    def request(
        self,
        request: Request | Mapping[str, Any],
        tokens: Sequence[int] | None = None,
        *,
        hashes: Sequence[Hashable] | None = None,
        now: float | None = None,
    ) -> Outcome: ...


class Step(Told):
    """A step of the workflow: requests made in it are its agent's."""

    def __init__(self, run: Run, node: str, agent: str) -> None:
        super().__init__(run, "step_start", "step_end", {"node": node, "agent": agent}, node=node, agent=agent)
        self.node, self.agent = node, agent

    def __enter__(self) -> Self:
        super().__enter__()
        self.run.steps.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(ValueError):
            self.run.steps.remove(self)
        super().__exit__(kind, fault, trace)


class Run(Told):
    """A run. owner: whose it is; steps: those that run now, in all its threads and tasks, the newest last. knows:
    whether its graph has a node, where the graph is known here; a step at another is warned of once.

    Leaving it tells `workflow_end`, so what it claimed for its run ends. Times come from the engine's clock.
    """

    def __init__(
        self,
        engine: Hears,
        owner: Owner,
        workflow: str | None = None,
        knows: Callable[[str], bool] | None = None,
    ) -> None:
        place = {"session": owner.session, "run": owner.run, "workflow": workflow, "agent": owner.agent}
        super().__init__(self, "workflow_start", "workflow_end", place)
        self.engine = engine
        self.workflow = workflow
        self.owner = owner
        self.knows = knows
        self.steps: list[Step] = []
        self._entered: Token[Run | None] | None = None

    def __enter__(self) -> Self:
        if self._open:
            return super().__enter__()
        outer = enter(Scope())  # a run within a run says nothing of the outer one
        try:
            super().__enter__()
        except BaseException:
            leave(outer)
            raise
        self._entered, self._outer = _run.set(self), outer
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._open and self._entered is not None:
            with suppress(ValueError, RuntimeError):
                _run.reset(self._entered)
            super().__exit__(kind, fault, trace)
            leave(self._outer)
            return
        super().__exit__(kind, fault, trace)

    def step(self, node: str, *, agent: str | None = None) -> Step:
        """A step at a node of the workflow, as a context. agent: who does it, by default one named as the node."""
        if self.knows is not None and not self.knows(node):
            warn_once(f"node {self.workflow} {node}", f"the workflow {self.workflow} has no node {node!r}")
        return Step(self, node, node if agent is None else agent)

    def tool(self, name: str, *, call: str | None = None, eta: float | None = None) -> Told:
        """A tool's call, as a context: `tool_call` and `tool_result`. call: its id, by default one of our own. eta:
        seconds that it will take, where that is known."""
        facts: dict[str, object] = {} if eta is None else {"eta": float(eta)}
        return Told(self, "tool_call", "tool_result", {}, tool=name, call=call or f"call-{next(_numbers)}", **facts)

    def branch(self, name: str, *, parent: str | None = None) -> Told:
        """A branch, as a context: `branch_start` and `branch_done`. parent: the branch it was forked from, by default
        the one that this is in."""
        here = self._scope()
        outer = parent if parent is not None else None if here is None else here.branch
        facts = {} if outer is None else {"parent": outer}
        return Told(self, "branch_start", "branch_done", {"branch": name, "parent": outer}, branch=name, **facts)

    def barrier(self, node: str) -> list[Answer]:
        """An AND join was reached: all that it waits for is there."""
        return self.event("barrier", node=node)

    def event(self, event: str, **attributes: object) -> list[Answer]:
        """Any event of this run's owner. Raises InputFault for a name that is no event."""
        owner = self.owner
        stated = {"tenant": owner.tenant, "session": owner.session, "run": owner.run, "agent": owner.agent}
        stated["workflow"] = self.workflow
        fields: dict[str, Any] = {name: value for name, value in stated.items() if value is not None}
        return self.engine.event(event, **{**fields, **attributes})

    def request(
        self,
        tokens: Sequence[int] | None = None,
        spans: Sequence[Span] = (),
        *,
        id: str | None = None,
        hashes: Sequence[Hashable] | None = None,
        branch: str | None = None,
        now: float | None = None,
        **attributes: object,
    ) -> Outcome:
        """A request of the innermost step's agent (else the run's), on an engine in this process. tokens: its token
        ids, or hashes of its blocks. Raises InputFault for what cannot be meant, and on a run of a service."""
        from kvpolicy.calling import check_tokens

        engine: Any = self.engine
        if not hasattr(engine, "request"):
            raise InputFault("a run of a service takes no requests: its LLM calls go through the client's own SDK")
        serves: _Serves = engine
        check_tokens(tokens)
        if tokens is None and hashes is None:
            raise InputFault("a request needs its token ids, or the hashes of its blocks")
        length = len(tokens) if tokens is not None else len(hashes or ()) * serves.block_size
        owner, facts, here = self.owner, dict(attributes), self._scope()
        step = self.steps[-1] if here is None and self.steps else None  # outside of its context: the newest step
        if here is not None and here.node is not None:
            owner = replace(owner, agent=here.agent)
            facts.setdefault("node", here.node)
        elif step is not None:
            owner = replace(owner, agent=step.agent)
            facts.setdefault("node", step.node)
        if branch is None and here is not None:
            branch = here.branch
        if branch is not None:
            owner = replace(owner, branch=branch)
        name = f"request-{next(_numbers)}" if id is None else id
        asked = Request(name, owner, length, serves.block_size, tuple(spans), attributes=facts)
        return serves.request(asked, tokens, hashes=hashes, now=now)

    def _scope(self) -> Scope | None:
        """Where this thread or task is, if that is in this run."""
        return current() if _run.get() is self else None

    def _where(self) -> dict[str, object]:
        """The owner fields that hold here: the agent of its step, its branch."""
        here = self._scope()
        if here is None:
            return {"agent": self.steps[-1].agent} if self.steps else {}
        told = {"agent": here.agent, "branch": here.branch}
        return {name: value for name, value in told.items() if value is not None}
