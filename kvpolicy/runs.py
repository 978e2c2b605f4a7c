"""A run of a workflow as contexts: entering and leaving them tells an engine what happened.

Made by `Engine.run`. Every context works with `with` and with `async with`; leaving by an exception tells the end all
the same, so a failed step holds nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import replace
from itertools import count
from types import TracebackType
from typing import Any, Protocol, Self

from kvpolicy.calling import check_tokens
from kvpolicy.claims.answers import Answer
from kvpolicy.faults import InputFault
from kvpolicy.request import Owner, Request, Span
from kvpolicy.steering import Outcome

_numbers = count(1)


class _Engine(Protocol):
    """What a run needs of its engine."""

    block_size: int

    def event(self, event: str, *, now: float | None = None, **attributes: object) -> list[Answer]: ...

    def request(
        self,
        request: Request | Mapping[str, Any],
        tokens: Sequence[int] | None = None,
        *,
        hashes: Sequence[Hashable] | None = None,
        now: float | None = None,
    ) -> Outcome: ...


class Told(AbstractContextManager["Told"], AbstractAsyncContextManager["Told"]):
    """A stretch of a run: `opens` is told when it is entered, `closes` when it is left. answers: to both, in order."""

    def __init__(self, run: Run, opens: str, closes: str, **attributes: object) -> None:
        self.run = run
        self.answers: list[Answer] = []
        self._opens, self._closes = opens, closes
        self._attributes = attributes

    def __enter__(self) -> Self:
        self.answers += self.run.event(self._opens, **self._attributes)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.answers += self.run.event(self._closes, **self._attributes)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, fault, trace)


class Step(Told):
    """A step of the workflow: requests made in it are its agent's."""

    def __init__(self, run: Run, node: str, agent: str | None) -> None:
        super().__init__(run, "step_start", "step_end", node=node, agent=agent)
        self.node, self.agent = node, agent

    def __enter__(self) -> Self:
        self.run.steps.append(self)
        return super().__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.run.steps.remove(self)
        super().__exit__(kind, fault, trace)


class Run(Told):
    """A run. owner: whose it is; steps: those that run now, innermost last.

    Leaving it tells `workflow_end`, so what it claimed for its run ends. Times come from the engine's clock.
    """

    def __init__(self, engine: _Engine, owner: Owner) -> None:
        super().__init__(self, "workflow_start", "workflow_end")
        self.engine = engine
        self.owner = owner
        self.steps: list[Step] = []

    def step(self, node: str, *, agent: str | None = None) -> Step:
        """A step at a node of the workflow, as a context. agent: who does it, by default one named as the node."""
        return Step(self, node, node if agent is None else agent)

    def tool(self, name: str, *, call: str | None = None) -> Told:
        """A tool's call, as a context: `tool_call` and `tool_result`. call: its id, by default one of our own."""
        return Told(self, "tool_call", "tool_result", tool=name, call=call or f"call-{next(_numbers)}", **self._agent())

    def branch(self, name: str) -> Told:
        """A branch, as a context: `branch_start` and `branch_done`."""
        return Told(self, "branch_start", "branch_done", branch=name)

    def event(self, event: str, **attributes: object) -> list[Answer]:
        """Any event of this run's owner. Raises InputFault for a name that is no event."""
        owner = self.owner
        stated = {"tenant": owner.tenant, "session": owner.session, "run": owner.run, "agent": owner.agent}
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
        """A request of the innermost step's agent (else the run's). tokens: its token ids, or hashes of its blocks."""
        size = self.engine.block_size
        check_tokens(tokens)
        if tokens is None and hashes is None:
            raise InputFault("a request needs its token ids, or the hashes of its blocks")
        length = len(tokens) if tokens is not None else len(hashes or ()) * size
        owner, facts = self.owner, dict(attributes)
        if self.steps:
            owner = replace(owner, agent=self.steps[-1].agent)
            facts.setdefault("node", self.steps[-1].node)
        if branch is not None:
            owner = replace(owner, branch=branch)
        name = f"request-{next(_numbers)}" if id is None else id
        asked = Request(name, owner, length, size, tuple(spans), attributes=facts)
        return self.engine.request(asked, tokens, hashes=hashes, now=now)

    def _agent(self) -> dict[str, object]:
        return {"agent": self.steps[-1].agent} if self.steps else {}
