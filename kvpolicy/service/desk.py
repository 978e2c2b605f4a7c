"""What the routes of decisions do, without HTTP: plans for documents, events, what was decided and why.

Called by `routes`. The tenant is the authenticated one, whatever a document says; nothing is told of another's.
Model requests go on meanwhile: what one call may ask at length goes in steps with a rest between them (one plan, one
event, one span), a plan has its bound of processor time, and what reads or writes a long document runs in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from kvpolicy.directive import Plan
from kvpolicy.faults import InputFault
from kvpolicy.plan import plan
from kvpolicy.plan.rows import as_json
from kvpolicy.plan.state import run_state
from kvpolicy.policy.explain import explain
from kvpolicy.policy.model import Subject
from kvpolicy.policy.policy import Policy
from kvpolicy.request import Request as Planned
from kvpolicy.request_json import MOST_BLOCKS, MOST_SPANS, read_request, read_state
from kvpolicy.service.aside import is_long, run
from kvpolicy.service.config import Limits
from kvpolicy.service.decisions import Decisions
from kvpolicy.service.edge import Refusal
from kvpolicy.service.held import Held
from kvpolicy.service.outbox import fields_of
from kvpolicy.service.planning import bounded
from kvpolicy.service.reading import read_value
from kvpolicy.service.tenants import Tenant
from kvpolicy.steering.pace import TimeSpent
from kvpolicy.workflow.events import event_from_row

Ask = Callable[[str, Mapping[str, Any], float], Awaitable[Mapping[str, Any] | None]]
MOST_AT_ONCE = 1000
NDJSON = "application/x-ndjson"
LONGEST_LINE = 8 << 20
ASK_WITHIN_S = 1.0  # of an engine's control channel; no request waits for it


class Desk:
    """decisions: what was and is decided. ask: a question to an engine's control channel; None: it did not answer.
    state_rows: see `Limits`."""

    def __init__(self, decisions: Decisions, ask: Ask, state_rows: int = Limits().state_rows) -> None:
        self._decisions, self._ask, self._state_rows = decisions, ask, state_rows

    async def plan(self, tenant: Tenant, document: Any) -> dict[str, Any]:
        """The plan of a document. Raises InputFault, and Refusal where it tells of a state at too great length."""
        told = document if isinstance(document, Mapping) and "request" in document else {"request": document}
        decisions, aside = self._decisions, is_long(told)
        self._check_state(told, 1)
        request = await run(aside, read_request, told["request"])
        request = replace(request, owner=replace(request.owner, tenant=tenant.name))
        wish = told.get("policy")
        chosen = decisions.policies.choose(
            tenant, request.model, request.owner, wish if isinstance(wish, str) else None, None
        )
        policy = chosen.version.policy
        state: Any = decisions.state
        if "state" in told:
            state, now = await run(aside, _stated, policy, request, told)
        else:
            now = decisions.clock()
            decisions.holding.replan(state.advance(now), now)
        try:
            made = plan(policy, request, state, now, pace=decisions.planning.pace())
        except TimeSpent:
            raise InputFault("planning it takes too long; ask with fewer spans") from None
        decisions.counts["asked"] += 1
        row = await run(aside, self._row, bounded(made, tenant.caps, now), request)
        return {**row, "policy": {"name": chosen.version.shown, "version": chosen.version.number, "mode": chosen.mode}}

    def _row(self, made: Plan, request: Planned) -> dict[str, Any]:
        """A plan as it is answered, with what an engine would get."""
        adapter = self._decisions.adapter
        lowered = adapter.lower(made, request)
        return {
            **as_json(made, request),
            "engine": {
                "name": adapter.capabilities.name,
                "state": lowered.state,
                "payload": lowered.payload,
                "losses": [loss.as_json() for loss in lowered.losses],
            },
        }

    async def plans(self, tenant: Tenant, document: Mapping[str, Any], rows: Sequence[Any]) -> list[bytes]:
        """The plans of several requests, each with what else the document says, each as JSON. Raises Refusal where all
        together would be longer than the longest of one."""
        for what, size, most in (("blocks", _blocks, MOST_BLOCKS), ("spans", _spans, MOST_SPANS)):
            if sum(map(size, rows)) > most:
                said = f"more than {most} {what} in one call; send the requests as lines of {NDJSON}"
                raise Refusal(413, "invalid_request_error", said)
        self._check_state(document, len(rows))
        made = []
        for row in rows:
            made.append(orjson.dumps(await self._plan_or_fault(tenant, {**document, "request": row})))
            await asyncio.sleep(0)
        return made

    async def _plan_or_fault(self, tenant: Tenant, document: Any) -> dict[str, Any]:
        """The plan of one among several, or what is wrong with it."""
        try:
            return await self.plan(tenant, document)
        except (InputFault, Refusal) as fault:
            return {"error": str(fault)}

    def _check_state(self, document: Mapping[str, Any], requests: int) -> None:
        """Raises Refusal for a state that takes too long to bring about, as often as it is asked for."""
        state = document.get("state")
        if not isinstance(state, Mapping):
            return
        graph = state.get("workflow")
        graph = graph if isinstance(graph, Mapping) else {}
        for where, names, most in (
            (state, ("events", "functions"), self._state_rows),
            (graph, ("nodes", "edges", "loops", "joins"), 10 * self._state_rows),
        ):
            for name in names:
                rows = where.get(name)
                if isinstance(rows, list | Mapping) and len(rows) > most:
                    said = f"state: {len(rows)} {name}; {most} are allowed in one document"
                    raise Refusal(413, "invalid_request_error", said)
        parts = [part for part in (*state.values(), *graph.values()) if isinstance(part, list | Mapping)]
        told, most = sum(map(len, parts)) * requests, 20 * self._state_rows
        if requests > 1 and told > most:
            said = f"state: it is {told} rows in all for {requests} requests; {most} are allowed in one call"
            raise Refusal(413, "invalid_request_error", f"{said}, send the requests as lines of {NDJSON}")

    async def stream(
        self, tenant: Tenant, parts: AsyncIterator[bytes], another: Callable[[], Tenant]
    ) -> AsyncIterator[bytes]:
        """One plan a line for one document a line, as they come. another: asked for every line but the first, which
        came in as the request did; tells whose it is. A refusal, its own or of the body, ends it, in a line."""
        first, pending = True, bytearray()
        while True:
            try:
                part = await anext(parts)
            except StopAsyncIteration:
                break
            except Refusal as refusal:
                yield orjson.dumps({"error": refusal.message}) + b"\n"
                return
            pending += part
            while (end := pending.find(b"\n")) >= 0:
                line = bytes(pending[:end])
                del pending[: end + 1]
                if line.strip():
                    asks = tenant if first else _asks(another)
                    first = False
                    if isinstance(asks, bytes):
                        yield asks
                        return
                    yield await self._line(asks, line)
                    await asyncio.sleep(0)
            if len(pending) > LONGEST_LINE:
                yield orjson.dumps({"error": f"a line is longer than {LONGEST_LINE} bytes"}) + b"\n"
                return
        if pending.strip():
            asks = tenant if first else _asks(another)
            yield asks if isinstance(asks, bytes) else await self._line(asks, bytes(pending))

    async def _line(self, tenant: Tenant, line: bytes) -> bytes:
        try:
            document = await read_value(line)
        except ValueError as fault:
            return orjson.dumps({"error": f"not JSON: {fault}"}) + b"\n"
        return orjson.dumps(await self._plan_or_fault(tenant, document)) + b"\n"

    async def events(self, tenant: Tenant, rows: Sequence[Any]) -> list[dict[str, Any]]:
        """The answers to several events."""
        hints = []
        for row in rows:
            hints.append(await self.event(tenant, row))
            await asyncio.sleep(0)
        return hints

    async def event(self, tenant: Tenant, row: Any) -> dict[str, Any]:
        """The answer to one event."""
        decisions = self._decisions
        try:
            if not isinstance(row, Mapping):
                raise InputFault("an event must be an object")
            event = event_from_row({**row, "tenant": tenant.name, "at": decisions.clock()})
            told = await decisions.happened(event)
        except InputFault as fault:
            return {"status": "rejected", "requested": 0, "granted": 0, "reason": str(fault)}
        if told is None:
            return {"status": "deferred", "requested": 0, "granted": 0, "reason": "the store has not answered yet"}
        if not told.could:
            return {"status": "ignored", "requested": 0, "granted": 0, "reason": "no owner agrees with its fields"}
        row = {"requested": told.could, "granted": told.reached, "heard": told.heard}
        if told.reached < told.could:
            return {
                "status": "deferred",
                **row,
                "reason": "it means many: it reaches the rest after this answer",
            }
        if told.heard < told.engines:
            of = f"no engine of {told.engines}" if not told.heard else f"only {told.heard} engines of {told.engines}"
            reason = f"noted; {of} that hold something for them has a control channel that is open"
            return {"status": "accepted", **row, "reason": reason}
        return {"status": "accepted", **row, "reason": None}

    async def explain(self, tenant: Tenant, request_id: str, span: int | None = None) -> dict[str, Any]:
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
                await asyncio.sleep(0)
        return {
            "request": request_id,
            "at": now,
            "policy": {"name": held.seen.chosen.version.shown, "version": held.seen.chosen.version.number},
            "mode": held.seen.chosen.mode,
            "engine": held.exchange.upstream,
            "phase": self._decisions.state.phase(held.request.owner),
            "spans": rows,
        }

    async def block(self, tenant: Tenant, request_id: str, index: int) -> dict[str, Any]:
        """One block of a request: what was decided for it, and what its engine says of it, where it answers in time."""
        held = self._held(tenant, request_id)
        made = held.seen.plan
        rows = [] if made is None else (await run(True, as_json, made, held.request))["blocks"]
        if not isinstance(rows, list) or not 0 <= index < len(rows):
            raise Refusal(404, "not_found_error", f"request {request_id} has {len(rows)} blocks, counted from 0")
        size, url = held.request.block_size, held.exchange.upstream
        owner = fields_of(held.request.owner)
        told = None if url is None else await self._ask(url, {"do": "show", "owner": owner}, ASK_WITHIN_S)
        claims = [] if told is None else [c for c in told.get("claims", ()) if c.get("requested", 0) > index]
        return {
            "request": request_id,
            "block": index,
            "start": index * size,
            "end": min((index + 1) * size, held.request.tokens),
            "decided": rows[index],
            "engine": url,
            "answered": told is not None,
            "claims": [{**claim, "covers": claim.get("blocks", 0) > index} for claim in claims],
        }

    async def owners(self, tenant: Tenant, session: str | None, run: str | None) -> list[dict[str, Any]]:
        """The tenant's owners, those of a session or a run where one is named."""
        state, rows = self._decisions.state, []
        for number, (owner, held) in enumerate(self._decisions.holding.plans.all(), 1):
            if number % MOST_AT_ONCE == 0:
                await asyncio.sleep(0)
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
        held = self._decisions.holding.plans.find(request_id)
        if held is None or held.request.owner.tenant != tenant.name:
            raise Refusal(404, "not_found_error", f"nothing is remembered of a request {request_id!r}")
        return held


def _blocks(row: Any) -> int:
    """How many rows of blocks a request's plan has; 0 where it is none that can be read."""
    tokens, size = (row.get("tokens"), row.get("block_size")) if isinstance(row, Mapping) else (None, None)
    return -(-tokens // size) if isinstance(tokens, int) and isinstance(size, int) and tokens > 0 < size else 0


def _spans(row: Any) -> int:
    """How many spans a request has, likewise."""
    spans = row.get("spans") if isinstance(row, Mapping) else None
    return len(spans) if isinstance(spans, list) else 0


def _asks(another: Callable[[], Tenant]) -> Tenant | bytes:
    """Whose a stream's next line is, or what it says where it may ask no more for now."""
    try:
        return another()
    except Refusal as refusal:
        again = {"retry_after_s": int(refusal.headers["retry-after"])} if "retry-after" in refusal.headers else {}
        return orjson.dumps({"error": refusal.message, **again}) + b"\n"


def _stated(policy: Policy, request: Planned, told: Mapping[str, Any]) -> tuple[Any, float]:
    """The state that a document tells, and its time."""
    file = read_state(told["state"])
    return run_state(policy, request, file.events, file.functions, file.workflow, told.get("now"))


def _attributes(request: Planned, index: int) -> dict[str, object]:
    """What rules see of a span."""
    span, owner = request.spans[index], request.owner
    own = {name: getattr(owner, name) for name in ("tenant", "session", "agent", "branch")}
    length = {} if span.end is None else {"tokens": span.end - span.start}
    found: dict[str, object] = {**own, **request.attributes, "model": request.model, **length, **span.attributes}
    return {key: value for key, value in found.items() if value is not None}
