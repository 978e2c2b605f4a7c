"""Decisions without a proxied request: plans, events, what was decided and why. For engines that are reached otherwise.

Mounted by `app` before the proxy. Every route asks for the tenant's key; the tenant of owners is the authenticated one,
whatever a document says. Faults are JSON with the key and the mend.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from kvpolicy.service.decisions import Decisions
from kvpolicy.service.desk import MOST_AT_ONCE, NDJSON, Ask, Desk
from kvpolicy.service.edge import CLOSE, Refusal
from kvpolicy.service.own_routes import Entrance, answer, described

PLAN_EXAMPLES = {
    "one request": {
        "request": {
            "id": "r1",
            "owner": {"session": "s1", "agent": "coder"},
            "model": "m",
            "block_size": 16,
            "tokens": 80,
            "spans": [{"kind": "system", "start": 0, "end": 40}, {"kind": "output", "start": 80, "end": None}],
        }
    }
}
EVENT = {"event": "tool_call", "session": "s1", "tool": "grep", "call": "c1", "eta": "4s"}
EVENT_EXAMPLES = {"a tool that runs": {"events": [EVENT]}}


Notices = Callable[[str, str | None], list[dict[str, Any]]]


class _BothWays(StreamingResponse):
    """An answer that is written while its request is still read. The plain one listens for the client to go away
    meanwhile, and would take the body's own messages for that. held: what ends with it. bounded: the way to a client
    that takes what it gets."""

    held: ExitStack
    bounded: Callable[[Send], Send]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self.held, suppress(TimeoutError):  # the server closes a connection whose answer was not ended
            await self.stream_response(self.bounded(send))


def make_routes(decisions: Decisions, entrance: Entrance, ask: Ask, notices: Notices) -> APIRouter:
    """The routes. entrance: who may ask. ask: a question to an engine's control channel. notices: of the prefix doctor,
    of a tenant's session (None: of all)."""
    routes = APIRouter()
    desk = Desk(decisions, ask, entrance.limits.state_rows)

    @routes.post(
        "/v1/plan",
        summary="What one request's spans get, or those of several",
        openapi_extra=described(PLAN_EXAMPLES, NDJSON),
    )
    async def post_plan(request: Request) -> Response:
        if request.headers.get("content-type", "").startswith(NDJSON):
            return _streamed(desk, entrance, request)
        with entrance.of(request) as tenant:
            document = await entrance.document(request)
            if isinstance(document, Mapping) and isinstance(document.get("requests"), list):
                rows = document["requests"]
                if len(rows) > MOST_AT_ONCE:
                    said = f"more than {MOST_AT_ONCE} requests; send them as {NDJSON}"
                    raise Refusal(413, "invalid_request_error", said)
                plans = b",".join(await desk.plans(tenant, document, rows))
                return Response(b'{"plans":[' + plans + b"]}", media_type="application/json")
            return answer(await desk.plan(tenant, document))

    @routes.post("/v1/events", summary="What happened to owners", openapi_extra=described(EVENT_EXAMPLES))
    async def post_events(request: Request) -> Response:
        with entrance.of(request) as tenant:
            document = await entrance.document(request)
            rows = document.get("events", [document]) if isinstance(document, Mapping) else document
            if not isinstance(rows, list) or len(rows) > MOST_AT_ONCE:
                raise Refusal(400, "invalid_request_error", f"events must be a list of at most {MOST_AT_ONCE}")
            return answer({"hints": await desk.events(tenant, rows)})

    @routes.get("/v1/explain/{request_id}", summary="What was decided for a request, and why")
    async def get_explanation(request: Request, request_id: str) -> Response:
        with entrance.of(request) as tenant:
            return answer(await desk.explain(tenant, request_id))

    @routes.get("/v1/explain/{request_id}/blocks/{block}", summary="One block of a request, and what its engine says")
    async def get_block(request: Request, request_id: str, block: int) -> Response:
        with entrance.of(request) as tenant:
            return answer(await desk.block(tenant, request_id, block))

    @routes.get("/v1/explain/{request_id}/{span}", summary="Why one span of a request stands where it stands")
    async def get_span(request: Request, request_id: str, span: int) -> Response:
        with entrance.of(request) as tenant:
            return answer(await desk.explain(tenant, request_id, span))

    @routes.get("/v1/owners", summary="Owners for whom engines hold something by our plans")
    async def get_owners(request: Request, session: str | None = None, run: str | None = None) -> Response:
        with entrance.of(request) as tenant:
            return answer({"owners": await desk.owners(tenant, session, run)})

    @routes.get("/v1/doctor", summary="Prompts that do not go on as the ones before them, and where they differ")
    async def get_notices(request: Request, session: str | None = None) -> Response:
        with entrance.of(request) as tenant:
            return answer({"notices": notices(tenant.name, session)})

    return routes


def _streamed(desk: Desk, entrance: Entrance, request: Request) -> Response:
    """Plans for lines; the tenant's caps count it for as long as it runs, and each of its lines. What is refused is so
    before it begins."""
    held = ExitStack()
    tenant = held.enter_context(entrance.of(request))
    lines = desk.stream(tenant, entrance.parts(request), partial(entrance.another, request))
    made = _BothWays(lines, media_type=NDJSON, headers=CLOSE)
    made.held, made.bounded = held, entrance.bounded
    return made
