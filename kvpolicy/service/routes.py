"""Decisions without a proxied request: plans, events, what was decided and why. For engines that are reached otherwise.

Mounted by `app` before the proxy. Every route asks for the tenant's key; the tenant of owners is the authenticated one,
whatever a document says. Faults are JSON with the key and the mend.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson
from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse

from kvpolicy.faults import InputFault
from kvpolicy.plan import plan
from kvpolicy.plan.rows import as_json
from kvpolicy.plan.state import run_state
from kvpolicy.policy.explain import explain
from kvpolicy.policy.model import Subject
from kvpolicy.request import Request as Planned
from kvpolicy.request_json import read_request, read_state
from kvpolicy.service.decisions import Decisions
from kvpolicy.service.edge import Refusal, joined, read_body
from kvpolicy.service.holding import Held
from kvpolicy.service.tenants import Tenant, Tenants
from kvpolicy.workflow.events import event_from_row

MOST_AT_ONCE = 1000
LONGEST_LINE = 8 << 20
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


def make_routes(decisions: Decisions, tenants: Tenants, most_bytes: int) -> APIRouter:
    """The routes. most_bytes: of a body."""
    routes = APIRouter()
    desk = _Desk(decisions)

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
            return StreamingResponse(desk.stream(tenant, request), media_type=NDJSON)
        document = await _document(request, most_bytes)
        if isinstance(document, Mapping) and isinstance(document.get("requests"), list):
            rows = document["requests"]
            if len(rows) > MOST_AT_ONCE:
                raise Refusal(413, "invalid_request_error", f"more than {MOST_AT_ONCE} requests; send them as {NDJSON}")
            return _json({"plans": [desk.plan_or_fault(tenant, {**document, "request": row}) for row in rows]})
        return _json(desk.plan(tenant, document))

    @routes.post("/v1/events", summary="What happened to owners", openapi_extra=_body(EVENT_EXAMPLES))
    async def post_events(request: Request) -> Response:
        tenant = who(request)
        document = await _document(request, most_bytes)
        rows = document.get("events", [document]) if isinstance(document, Mapping) else document
        if not isinstance(rows, list) or len(rows) > MOST_AT_ONCE:
            raise Refusal(400, "invalid_request_error", f"events must be a list of at most {MOST_AT_ONCE}")
        return _json({"hints": [desk.event(tenant, row) for row in rows]})

    @routes.get("/v1/explain/{request_id}", summary="What was decided for a request, and why")
    async def get_explanation(request: Request, request_id: str) -> Response:
        return _json(desk.explain(who(request), request_id))

    @routes.get("/v1/explain/{request_id}/{span}", summary="Why one span of a request stands where it stands")
    async def get_span(request: Request, request_id: str, span: int) -> Response:
        return _json(desk.explain(who(request), request_id, span))

    @routes.get("/v1/owners", summary="Owners for whom engines hold something by our plans")
    async def get_owners(request: Request, session: str | None = None, run: str | None = None) -> Response:
        return _json({"owners": desk.owners(who(request), session, run)})

    return routes


class _Desk:
    """What the routes do, without HTTP."""

    def __init__(self, decisions: Decisions) -> None:
        self._decisions = decisions

    def plan(self, tenant: Tenant, document: Any) -> dict[str, Any]:
        """The plan of a document. Raises InputFault."""
        told = document if isinstance(document, Mapping) and "request" in document else {"request": document}
        request = read_request(told["request"])
        request = replace(request, owner=replace(request.owner, tenant=tenant.name))
        wish = told.get("policy")
        chosen = self._decisions.policies.choose(
            tenant, request.model, request.owner, wish if isinstance(wish, str) else None, None
        )
        policy = chosen.version.policy
        if "state" in told:
            file = read_state(told["state"])
            state: Any
            state, now = run_state(policy, request, file.events, file.functions, file.workflow, told.get("now"))
        else:
            state, now = self._decisions.state, self._decisions.clock()
            state.advance(now)
        made = plan(policy, request, state, now)
        lowered = self._decisions.adapter.lower(made, request)
        self._decisions.counts["asked"] += 1
        return {
            **as_json(made, request),
            "policy": {"name": chosen.version.name, "version": chosen.version.number, "mode": chosen.mode},
            "engine": {
                "name": self._decisions.adapter.capabilities.name,
                "state": lowered.state,
                "payload": lowered.payload,
                "losses": [loss.as_json() for loss in lowered.losses],
            },
        }

    def plan_or_fault(self, tenant: Tenant, document: Any) -> dict[str, Any]:
        """The plan of one among several, or what is wrong with it."""
        try:
            return self.plan(tenant, document)
        except InputFault as fault:
            return {"error": str(fault)}

    async def stream(self, tenant: Tenant, request: Request) -> AsyncIterator[bytes]:
        """One plan a line for one document a line, as they come."""
        pending = bytearray()
        async for part in request.stream():
            pending += part
            while (end := pending.find(b"\n")) >= 0:
                line = bytes(pending[:end])
                del pending[: end + 1]
                if line.strip():
                    yield self._line(tenant, line)
            if len(pending) > LONGEST_LINE:
                yield orjson.dumps({"error": f"a line is longer than {LONGEST_LINE} bytes"}) + b"\n"
                return
        if pending.strip():
            yield self._line(tenant, bytes(pending))

    def _line(self, tenant: Tenant, line: bytes) -> bytes:
        try:
            document = orjson.loads(line)
        except orjson.JSONDecodeError as fault:
            return orjson.dumps({"error": f"not JSON: {fault}"}) + b"\n"
        return orjson.dumps(self.plan_or_fault(tenant, document)) + b"\n"

    def event(self, tenant: Tenant, row: Any) -> dict[str, Any]:
        """The answer to one event."""
        decisions = self._decisions
        try:
            if not isinstance(row, Mapping):
                raise InputFault("an event must be an object")
            event = event_from_row({**row, "tenant": tenant.name, "at": decisions.clock()})
        except InputFault as fault:
            return {"status": "rejected", "requested": 0, "granted": 0, "reason": str(fault)}
        reached = decisions.happened(event)
        if not reached:
            return {"status": "ignored", "requested": 0, "granted": 0, "reason": "no owner agrees with its fields"}
        return {"status": "accepted", "requested": reached, "granted": reached, "reason": None}

    def explain(self, tenant: Tenant, request_id: str, span: int | None = None) -> dict[str, Any]:
        """What was decided for a request that is still remembered."""
        held = self._held(tenant, request_id)
        now = self._decisions.clock()
        policy = held.seen.chosen.version.policy
        spans = held.request.spans
        if span is not None and not 0 <= span < len(spans):
            raise Refusal(404, "not_found_error", f"request {request_id} has {len(spans)} spans, counted from 0")
        rows = []
        for index, each in enumerate(spans):
            if span is None or index == span:
                subject = Subject(each.kind, _attributes(held.request, index), held.request.owner, index)
                told = explain(policy, subject, self._decisions.state).as_json()
                rows.append({"span": index, "start": each.start, "end": each.end, **told})
        return {
            "request": request_id,
            "at": now,
            "policy": {"name": held.seen.chosen.version.name, "version": held.seen.chosen.version.number},
            "mode": held.seen.chosen.mode,
            "engine": held.exchange.upstream,
            "phase": self._decisions.state.phase(held.request.owner),
            "spans": rows,
        }

    def owners(self, tenant: Tenant, session: str | None, run: str | None) -> list[dict[str, Any]]:
        """The tenant's owners, those of a session or a run where one is named."""
        state, rows = self._decisions.state, []
        for owner, held in self._decisions.holding.all():
            if (
                owner.tenant != tenant.name
                or (session or owner.session) != owner.session
                or (run or owner.run) != owner.run
            ):
                continue
            rows.append(
                {
                    "session": owner.session,
                    "run": owner.run,
                    "agent": owner.agent,
                    "branch": owner.branch,
                    "phase": state.phase(owner),
                    "requests": [each.exchange.id for each in held],
                }
            )
            if len(rows) >= MOST_AT_ONCE:
                break
        return rows

    def _held(self, tenant: Tenant, request_id: str) -> Held:
        held = self._decisions.holding.find(request_id)
        if held is None or held.request.owner.tenant != tenant.name:
            raise Refusal(404, "not_found_error", f"nothing is remembered of a request {request_id!r}")
        return held


def _attributes(request: Planned, index: int) -> dict[str, object]:
    """What rules see of a span."""
    span, owner = request.spans[index], request.owner
    own = {name: getattr(owner, name) for name in ("tenant", "session", "agent", "branch")}
    length = {} if span.end is None else {"tokens": span.end - span.start}
    found: dict[str, object] = {**own, **request.attributes, "model": request.model, **length, **span.attributes}
    return {key: value for key, value in found.items() if value is not None}


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
