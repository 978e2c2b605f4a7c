"""What the gateway's own routes have in common: who asks, within which bounds, and how documents come and go.

Used by `routes`, `workflows` and `admin`. The same limits hold here as for requests that are passed on (`proxy`), and
caps as large, counted apart: what a client tells of its runs takes nothing from its model requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import orjson
from fastapi import Request, Response
from starlette.types import Message, Send

from kvpolicy.service.admission import Admission
from kvpolicy.service.config import Limits
from kvpolicy.service.edge import CLOSE, Refusal, joined, read_body, received
from kvpolicy.service.reading import read_value
from kvpolicy.service.tenants import Tenant, Tenants


class Entrance:
    """tenants: who may ask. limits: of heads and bodies. admission: the one of requests to these routes."""

    def __init__(self, tenants: Tenants, limits: Limits, admission: Admission) -> None:
        self._tenants, self.limits, self._admission = tenants, limits, admission

    @contextmanager
    def of(self, request: Request) -> Iterator[Tenant]:
        """The tenant of a request while that is answered. Raises Refusal for nobody's, and for one too many."""
        headers = joined(request.headers.raw, self.limits.header_bytes)
        with self._admission.admit(self._tenants, headers) as tenant:
            yield tenant

    def another(self, request: Request) -> Tenant:
        """A request that is being answered asks for one thing more: whose it is by now. Raises Refusal where it is
        nobody's any more, and where that is one too many."""
        return self._admission.another(self._tenants, joined(request.headers.raw, self.limits.header_bytes))

    def bounded(self, send: Send) -> Send:
        """A way to the client that breaks off where it takes nothing for too long. Raises TimeoutError there."""

        async def within(message: Message) -> None:
            async with asyncio.timeout(self.limits.client_idle_s):
                await send(message)

        return within

    async def document(self, request: Request, most: int | None = None) -> Any:
        """A request's body as JSON. most: bytes, where that is less than the limit of bodies. Raises Refusal."""
        limits = self.limits
        most = limits.body_bytes if most is None else min(most, limits.body_bytes)
        stated = request.headers.get("content-length")
        try:
            data = await read_body(request.receive, most, limits.client_idle_s, stated, limits.body_s)
            return await read_value(data)
        except ValueError as fault:
            raise Refusal(400, "invalid_request_error", f"the body is not JSON: {fault}") from None
        except ConnectionResetError:
            raise Refusal(400, "invalid_request_error", "the client went away", CLOSE) from None

    async def parts(self, request: Request) -> AsyncIterator[bytes]:
        """A body that may go on for as long as it comes, as it does; it ends where the client goes away. Raises Refusal
        where nothing of it comes for too long."""
        more = True
        while more:
            try:
                part, more = await received(request.receive, self.limits.client_idle_s)
            except ConnectionResetError:
                return
            yield part


def answer(document: object, status: int = 200) -> Response:
    """A document as an answer."""
    return Response(orjson.dumps(document), status, media_type="application/json")


def described(examples: Mapping[str, object], *others: str) -> dict[str, Any]:
    """A request body as OpenAPI describes it, with examples that are tests. others: media types beside JSON."""
    content: dict[str, Any] = {
        "application/json": {
            "schema": {"type": "object"},
            "examples": {name: {"value": value} for name, value in examples.items()},
        }
    }
    content |= {name: {"schema": {"type": "string"}} for name in others}
    return {"requestBody": {"required": True, "content": content}}
