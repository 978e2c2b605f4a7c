"""`kvpolicy.Service`: the address of `kvp serve`, with what an application wants of it.

    service = kvpolicy.Service("http://127.0.0.1:8700")
    client = service.annotate(openai.OpenAI(base_url=service.openai_url))     # one line: exact
    with service.run(session="s1") as run, run.step("writer"): ...

Events are sent by a thread of its own (`sending`); plans and explanations are asked for and waited for.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote
from uuid import uuid4

from kvpolicy.client.once import warn_once
from kvpolicy.client.sending import Sender, Unreachable, exchange
from kvpolicy.client.transport import annotate
from kvpolicy.faults import InputFault
from kvpolicy.request import Owner
from kvpolicy.runs import Run

if TYPE_CHECKING:
    from kvpolicy.claims.answers import Answer

Client = TypeVar("Client")
GRAPH_WITHIN_S = 2.0  # a graph should be there before its run's first call


class Service:
    """The service at `url` (scheme, host and port; a path `/v1` at its end is left off). key: the API key of its
    tenant. Raises InputFault for an address that is none. Nothing is sent until something happens."""

    def __init__(self, url: str, *, key: str | None = None) -> None:
        if not isinstance(url, str) or not url.startswith(("http://", "https://")):
            raise InputFault(f"a service's address is such as http://127.0.0.1:8700, not {url!r}")
        self.url = url.rstrip("/").removesuffix("/v1").rstrip("/")
        self._key = key
        self._graphs: dict[str, str] = {}
        self._sender = Sender(lambda rows: self._ask("POST", "/v1/events", b'{"events":' + rows + b"}"))

    @property
    def openai_url(self) -> str:
        """The base URL for clients of OpenAI; those of Anthropic take `url`."""
        return f"{self.url}/v1"

    @property
    def counts(self) -> dict[str, int]:
        """Events `sent`, `dropped`, `failed`, and `refused` by the service."""
        return dict(self._sender.counts)

    def annotate(self, client: Client) -> Client:
        """The client itself, whose calls now say where they come from; see `kvpolicy.annotate`."""
        return annotate(client)

    def run(
        self,
        workflow: object = None,
        *,
        session: str | None = None,
        run: str | None = None,
        agent: str | None = None,
    ) -> Run:
        """One run, as a context; see `Run`. session, run: by default new names. workflow: the name of a workflow that
        the service knows, or a graph in any form, which it is told now (up to 2 s are waited for it; a service that
        does not answer is warned of once, and the run goes on without). Raises InputFault for what is no graph."""
        name = workflow if isinstance(workflow, str) or workflow is None else self.describe(workflow)
        owner = Owner(session=session or f"s-{uuid4().hex}", run=run or f"r-{uuid4().hex}", agent=agent)
        return Run(self, owner, name)

    def describe(self, workflow: object, name: str | None = None) -> str:
        """Tell a workflow's graph, unless the service was told the same before. Returns the name that runs give. A
        graph that was changed is told again, and counts for runs that begin from then on."""
        from kvpolicy.client.graphs import document
        from kvpolicy.workflow.graph import Graph

        told = document(workflow)
        Graph.sound(told)
        known = name or str(told.get("name") or "workflow")
        text = json.dumps(told, sort_keys=True)
        if self._graphs.get(known) == text:
            return known
        self._graphs[known] = text
        try:
            self._ask("PUT", f"/v1/workflows/{quote(known, safe='')}", told, GRAPH_WITHIN_S)
        except Unreachable as fault:
            self._graphs.pop(known, None)
            warn_once("graph", f"a workflow's graph was not told: {fault}")
        return known

    def event(self, event: str, *, now: float | None = None, **attributes: object) -> list[Answer]:
        """Something happened: queued, and sent in order. Its answers are not waited for: the list is empty. now is the
        service's. Raises InputFault for a name that is no event, or a field that no event has."""
        from kvpolicy.workflow.events import event_from_row

        told = {name: value for name, value in attributes.items() if name != "tenant" and value is not None}
        event_from_row({**told, "event": event}, 0.0)
        self._sender.put({**told, "event": event})
        return []

    def plan(self, request: Mapping[str, Any]) -> Any:
        """What the policy wants for a request (the JSON form of `kvp plan`), as JSON. Raises InputFault with what the
        service said."""
        return self._answer("POST", "/v1/plan", {"request": dict(request)})

    def explain(self, request_id: str) -> Any:
        """What was decided for a request, and why, as JSON. Raises InputFault as `plan` does."""
        return self._answer("GET", f"/v1/explain/{quote(request_id, safe='')}")

    def owners(self, *, session: str | None = None, run: str | None = None) -> Any:
        """Owners for whom something is held, as JSON rows. Raises InputFault as `plan` does."""
        told = {"session": session, "run": run}
        query = "&".join(f"{name}={quote(value, safe='')}" for name, value in told.items() if value is not None)
        return self._answer("GET", f"/v1/owners?{query}")["owners"]

    def flush(self, within_s: float = 2.0) -> bool:
        """Wait until the events told so far are delivered or given up; False where that took longer (seconds)."""
        return self._sender.flush(within_s)

    def close(self) -> None:
        """Deliver what waits, and take no more events."""
        self._sender.close()

    def _answer(self, method: str, path: str, document: object = None) -> Any:
        try:
            return self._ask(method, path, document)
        except Unreachable as fault:
            raise InputFault(str(fault)) from None

    def _ask(self, method: str, path: str, document: object = None, within_s: float = 2.0) -> Any:
        return exchange(method, self.url + path, document, self._key, within_s)


class AsyncService:
    """`Service` for asynchronous code: what waits is awaited, on a thread."""

    def __init__(self, url: str, *, key: str | None = None) -> None:
        self.service = Service(url, key=key)

    def annotate(self, client: Client) -> Client:
        """See `Service.annotate`."""
        return annotate(client)

    async def run(self, workflow: object = None, **fields: Any) -> Run:
        """See `Service.run`: `async with await service.run(…)`."""
        return await asyncio.to_thread(self.service.run, workflow, **fields)

    async def event(self, event: str, *, now: float | None = None, **attributes: object) -> list[Answer]:
        """See `Service.event`."""
        return self.service.event(event, now=now, **attributes)

    async def plan(self, request: Mapping[str, Any]) -> Any:
        """See `Service.plan`."""
        return await asyncio.to_thread(self.service.plan, request)

    async def explain(self, request_id: str) -> Any:
        """See `Service.explain`."""
        return await asyncio.to_thread(self.service.explain, request_id)

    async def flush(self, within_s: float = 2.0) -> bool:
        """See `Service.flush`."""
        return await asyncio.to_thread(self.service.flush, within_s)

    async def close(self) -> None:
        """See `Service.close`."""
        await asyncio.to_thread(self.service.close)
