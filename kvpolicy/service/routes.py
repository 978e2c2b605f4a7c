"""Decisions without a proxied request: plans, events, what was decided and why. For engines that are reached otherwise.

Mounted by `app` before the proxy. Every route asks for the tenant's key; the tenant of owners is the authenticated one,
whatever a document says. Faults are JSON with the key and the mend.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson
from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from kvpolicy.service.decisions import Decisions
from kvpolicy.service.desk import MOST_AT_ONCE, Ask, Desk
from kvpolicy.service.edge import Refusal, joined, read_body
from kvpolicy.service.tenants import Tenant, Tenants

NDJSON = "application/x-ndjson"

PLAN_EXAMPLES = [
    {
        "request": {
            "id": "r1",
            "owner": {"session": "s1", "agent": "coder"},
            "model": "m",
            "block_size": 16,
            "tokens": 80,
            "spans": [{"kind": "system", "start": 0, "end": 40}, {"kind": "output", "start": 80, "end": None}],
        }
    }
]
EVENT_EXAMPLES = [{"events": [{"event": "tool_call", "session": "s1", "tool": "grep", "call": "c1", "eta": "4s"}]}]


Notices = Callable[[str, str | None], list[dict[str, Any]]]


class _BothWays(StreamingResponse):
    """An answer that is written while its request is still read. The plain one listens for the client to go away
    meanwhile, and would take the body's own messages for that."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.stream_response(send)


def make_routes(decisions: Decisions, tenants: Tenants, most_bytes: int, ask: Ask, notices: Notices) -> APIRouter:
    """The routes. most_bytes: of a body. ask: a question to an engine's control channel. notices: of the prefix doctor,
    of a tenant's session (None: of all)."""
    routes = APIRouter()
    desk = Desk(decisions, ask)

    def who(request: Request) -> Tenant:
        tenant = tenants.of(joined(request.headers.raw, most_bytes))
        if tenant is None:
            raise Refusal(401, "authentication_error", "a known API key is needed", {"www-authenticate": "Bearer"})
        return tenant

    @routes.post(
        "/v1/plan",
        summary="What one request's spans get, or those of several",
        openapi_extra=_body(PLAN_EXAMPLES, NDJSON),
    )
    async def post_plan(request: Request) -> Response:
        tenant = who(request)
        if request.headers.get("content-type", "").startswith(NDJSON):
            return _BothWays(desk.stream(tenant, request), media_type=NDJSON)
        document = await _document(request, most_bytes)
        if isinstance(document, Mapping) and isinstance(document.get("requests"), list):
            rows = document["requests"]
            if len(rows) > MOST_AT_ONCE:
                raise Refusal(413, "invalid_request_error", f"more than {MOST_AT_ONCE} requests; send them as {NDJSON}")
            return _json({"plans": await desk.plans(tenant, document, rows)})
        return _json(await desk.plan(tenant, document))

    @routes.post("/v1/events", summary="What happened to owners", openapi_extra=_body(EVENT_EXAMPLES))
    async def post_events(request: Request) -> Response:
        tenant = who(request)
        document = await _document(request, most_bytes)
        rows = document.get("events", [document]) if isinstance(document, Mapping) else document
        if not isinstance(rows, list) or len(rows) > MOST_AT_ONCE:
            raise Refusal(400, "invalid_request_error", f"events must be a list of at most {MOST_AT_ONCE}")
        return _json({"hints": await desk.events(tenant, rows)})

    @routes.get("/v1/explain/{request_id}", summary="What was decided for a request, and why")
    async def get_explanation(request: Request, request_id: str) -> Response:
        return _json(await desk.explain(who(request), request_id))

    @routes.get("/v1/explain/{request_id}/blocks/{block}", summary="One block of a request, and what its engine says")
    async def get_block(request: Request, request_id: str, block: int) -> Response:
        return _json(await desk.block(who(request), request_id, block))

    @routes.get("/v1/explain/{request_id}/{span}", summary="Why one span of a request stands where it stands")
    async def get_span(request: Request, request_id: str, span: int) -> Response:
        return _json(await desk.explain(who(request), request_id, span))

    @routes.get("/v1/owners", summary="Owners for whom engines hold something by our plans")
    async def get_owners(request: Request, session: str | None = None, run: str | None = None) -> Response:
        return _json({"owners": await desk.owners(who(request), session, run)})

    @routes.get("/v1/doctor", summary="Prompts that do not go on as the ones before them, and where they differ")
    async def get_notices(request: Request, session: str | None = None) -> Response:
        return _json({"notices": notices(who(request).name, session)})

    return routes


async def _document(request: Request, most: int) -> Any:
    data = await read_body(request.receive, most, 60.0, request.headers.get("content-length"))
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as fault:
        raise Refusal(400, "invalid_request_error", f"the body is not JSON: {fault}") from None


def _json(document: object, status: int = 200) -> Response:
    return Response(orjson.dumps(document), status, media_type="application/json")


def _body(rows: Sequence[Any], *others: str) -> dict[str, Any]:
    """A request body as OpenAPI describes it, with examples that are tests."""
    examples = {f"example {number}": {"value": row} for number, row in enumerate(rows, 1)}
    content: dict[str, Any] = {"application/json": {"schema": {"type": "object"}, "examples": examples}}
    content |= {name: {"schema": {"type": "string"}} for name in others}
    return {"requestBody": {"required": True, "content": content}}
