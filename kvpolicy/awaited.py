"""`kvpolicy.AsyncEngine`: the engine of `embedded` for asynchronous code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvpolicy.claims.answers import Answer
from kvpolicy.directive import Plan
from kvpolicy.embedded import Engine
from kvpolicy.loading import Source
from kvpolicy.policy.policy import Policy
from kvpolicy.request import Request
from kvpolicy.runs import Run
from kvpolicy.steering import Outcome
from kvpolicy.workflow.events import Event


class AsyncEngine:
    """`Engine` for asynchronous code: the same arguments, the same calls, awaited. Nothing in it waits for anything, so
    a call takes as long as its work and does not need a thread."""

    def __init__(self, policy: Policy | Source | None = None, adapter: str = "memory", **settings: Any) -> None:
        self.engine = Engine(policy, adapter, **settings)

    async def plan(self, request: Request | Mapping[str, Any], now: float | None = None) -> Plan:
        """See `Engine.plan`."""
        return self.engine.plan(request, now)

    async def request(
        self, request: Request | Mapping[str, Any], tokens: Sequence[int] | None = None, **more: Any
    ) -> Outcome:
        """See `Engine.request`."""
        return self.engine.request(request, tokens, **more)

    async def finish(self, request_id: str, **more: Any) -> bool:
        """See `Engine.finish`."""
        return self.engine.finish(request_id, **more)

    async def cancel(self, request_id: str, *, now: float | None = None) -> bool:
        """See `Engine.cancel`."""
        return self.engine.cancel(request_id, now=now)

    async def event(self, event: str | Event, *, now: float | None = None, **attributes: object) -> list[Answer]:
        """See `Engine.event`."""
        return self.engine.event(event, now=now, **attributes)

    async def advance(self, now: float | None = None) -> None:
        """See `Engine.advance`."""
        self.engine.advance(now)

    def run(self, workflow: object = None, **fields: Any) -> Run:
        """See `Engine.run`; the run, its steps and its tools are asynchronous contexts, too."""
        return self.engine.run(workflow, **fields)
