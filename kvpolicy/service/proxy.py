"""The reverse proxy: an ASGI application that passes requests on and answers back.

A model request becomes an `Exchange` that the stages see; every other path goes through as it came. What a stage does
wrong costs its hints and nothing else: the request goes out as it was before that stage, within the time that the
configuration gives. Isolation is not subject to that: a salt that nobody shares is set before any stage runs.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from uuid import uuid4

from starlette.types import Receive, Scope, Send

from kvpolicy.request import Owner
from kvpolicy.service import paths
from kvpolicy.service.admission import Admission
from kvpolicy.service.aside import has_many_messages, run
from kvpolicy.service.config import Config
from kvpolicy.service.edge import (
    CLOSE,
    Refusal,
    joined,
    passed_on,
    read_body,
    refuse,
    stripped,
    without_raw_fields,
)
from kvpolicy.service.exchange import CANCELLED, FAILED, Exchange, Stage
from kvpolicy.service.forwarding import Forwarding, Passage, UpstreamBroke
from kvpolicy.service.isolation import SALT_FIELD, Mint, unique
from kvpolicy.service.reading import LONG, read_object, written
from kvpolicy.service.tenants import Tenant, Tenants
from kvpolicy.service.upstreams import Upstreams
from kvpolicy.words import DEFAULT_SHARE

OUTCOMES = (
    "requests",
    "passed",
    "refused",
    "cancelled",
    "broken",
    "stalled",
    "retried",
    "upstream_faults",
    "stage_faults",
    "stage_late",
)
FAILED_OPEN = "FAILED_OPEN"  # told to the client: its request went on without what a part of the gateway had for it


class Proxy:
    """stages: in the order in which they see an exchange. clock: seconds. mint: salts of what is not planned. counts:
    OUTCOMES, and refusals by status. admission: of requests that are passed on, own_admission: of those to our own
    routes. decided, began: told seconds from a model request's arrival to its way out, and with the upstream's address
    to its answer's beginning. look: at what a long request means, before its stages' time begins, in a thread: it
    touches nothing but the exchange's own. chosen: told of an exchange when its engine and status are known, before its
    answer goes back."""

    def __init__(
        self,
        config: Config,
        tenants: Tenants,
        upstreams: Upstreams,
        stages: Sequence[Stage],
        clock: Callable[[], float],
        mint: Mint | None = None,
    ) -> None:
        self.config, self.tenants, self.upstreams, self.stages, self.clock = config, tenants, upstreams, stages, clock
        self.counts: Counter[str] = Counter(dict.fromkeys(OUTCOMES, 0))
        self.decided: Callable[[float], object] | None = None
        self.began: Callable[[str, float], object] | None = None
        self.look: Callable[[Exchange], object] | None = None
        self.chosen: Callable[[Exchange], object] | None = None
        self.running = 0
        self.draining = False
        self._mint = mint
        self._closed = frozenset(config.closed)
        self.admission, self.own_admission = Admission(clock), Admission(clock)
        self._forwarding = Forwarding(upstreams, config.limits, self.counts, clock)
        self._prefix = uuid4().hex[:12]
        self._numbers = itertools.count()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        dialect = paths.dialect_of(scope["method"], scope["path"])
        self.running += 1
        try:
            await self._serve(scope, receive, send, dialect)
        except Refusal as refusal:
            self.counts["refused"] += 1
            self.counts[f"refused_{refusal.status}"] += 1
            await refuse(send, refusal, dialect)
        except ConnectionResetError:
            self.counts["cancelled"] += 1
        except UpstreamBroke:
            self.counts["broken"] += 1  # the server closes a connection whose answer was not ended
        finally:
            self.running -= 1

    async def _serve(self, scope: Scope, receive: Receive, send: Send, dialect: str | None) -> None:
        if self.draining:
            raise Refusal(503, "overloaded_error", "the gateway is shutting down", {"retry-after": "1", **CLOSE})
        headers = joined(scope["headers"], self.config.limits.header_bytes)
        raw_path = scope.get("raw_path") or scope["path"].encode()
        check = partial(paths.check, scope["path"], raw_path, self._closed)
        with self.admission.admit(self.tenants, headers, check) as tenant:
            query = b"?" + scope["query_string"] if scope["query_string"] else b""
            passage = Passage(
                scope["method"],
                (raw_path + query).decode("latin-1"),
                passed_on(scope["headers"], secret=not self.config.open),
                await self._read(receive, headers),
            )
            if dialect is None:
                await self._pass(scope["path"], tenant, passage, receive, send)
            else:
                await self._plan(dialect, tenant, headers, passage, receive, send)

    async def _read(self, receive: Receive, headers: Mapping[str, str]) -> bytes | None:
        limits = self.config.limits
        stated = headers.get("content-length")
        return await read_body(receive, limits.body_bytes, limits.client_idle_s, stated, limits.body_s) or None

    async def _pass(self, path: str, tenant: Tenant, passage: Passage, receive: Receive, send: Send) -> None:
        """Everything that is no model request."""
        self.counts["passed"] += 1
        if passage.body is not None:
            passage.body = await run(len(passage.body) >= LONG, without_raw_fields, passage.body)
            if path in paths.SALTED:
                passage.body = await self._salted(passage, tenant)
        self.counts["cancelled"] += await self._forwarding.forward(passage, receive, send) == CANCELLED

    async def _salted(self, passage: Passage, tenant: Tenant) -> bytes:
        body = await read_object(passage)
        try:
            salt = unique() if self._mint is None else self._mint(Owner(tenant.name), DEFAULT_SHARE)
        except Exception:
            salt = unique()
        return written(stripped(body) | {SALT_FIELD: salt or unique()})

    # --- stages ---------------------------------------------------------------------------------------------------

    async def _plan(
        self,
        dialect: str,
        tenant: Tenant,
        headers: Mapping[str, str],
        passage: Passage,
        receive: Receive,
        send: Send,
    ) -> None:
        """A model request: the stages see it, then it goes out."""
        self.counts["requests"] += 1
        long = len(passage.body or b"") >= LONG
        body = await read_object(passage)
        exchange = Exchange(
            f"{self._prefix}-{next(self._numbers)}",
            dialect,
            tenant,
            headers,
            body,
            self.clock(),
            bool(body.get("stream")),
            stripped(body) | {SALT_FIELD: unique()},
        )
        how = FAILED
        try:
            if self.look is not None and (long or has_many_messages(body)):
                with suppress(Exception):  # no thread is left: its stage does it, then
                    await asyncio.to_thread(self.look, exchange)
            for stage in self.stages:
                await self._enter(stage, exchange)
            model = body.get("model")
            passage.model = model if isinstance(model, str) else None
            passage.body = written(exchange.sent)
            if self.decided is not None:
                self.decided(self.clock() - exchange.arrived)
            exchange.sent = {}
            # The answer is read on the way, so it must not be compressed.
            ours = {**exchange.sent_headers, "accept-encoding": "identity"}
            passage.headers = [*((n, v) for n, v in passage.headers if n not in ours), *ours.items()]
            passage.prefer, passage.told = exchange.prefer, exchange.answer_headers
            passage.asks = lambda url: self._asks(exchange, url)
            passage.chose = lambda url, status: self._chose(exchange, url, status)
            passage.chunk = lambda data: self._chunk(exchange, data)
            how = await self._forwarding.forward(passage, receive, send)
            self.counts["cancelled"] += how == CANCELLED
        finally:
            self._leave(exchange, how)

    async def _enter(self, stage: Stage, exchange: Exchange) -> None:
        """One stage. Where it fails, what it had begun to write goes, but for a salt, and the client is told."""
        sent, sent_headers, told = dict(exchange.sent), dict(exchange.sent_headers), dict(exchange.answer_headers)
        prefer = exchange.prefer
        try:
            async with asyncio.timeout(self.config.limits.decide_within_s):
                await stage.enter(exchange)
        except Refusal:
            raise
        except Exception as fault:
            self.counts["stage_late" if isinstance(fault, TimeoutError) else "stage_faults"] += 1
            if SALT_FIELD in exchange.sent:
                sent[SALT_FIELD] = exchange.sent[SALT_FIELD]
            exchange.sent, exchange.sent_headers, exchange.prefer = sent, sent_headers, prefer
            warned = told.get("x-kvp-warn")
            exchange.answer_headers = told | {
                "x-kvp-warn": FAILED_OPEN if warned is None else f"{warned}, {FAILED_OPEN}"
            }

    def _asks(self, exchange: Exchange, url: str) -> None:
        exchange.engine = url
        if exchange.sent_off is not None:
            try:
                exchange.sent_off(exchange)
            except Exception:
                self.counts["stage_faults"] += 1

    def _chose(self, exchange: Exchange, url: str, status: int) -> None:
        exchange.upstream, exchange.status = url, status
        if self.began is not None:
            self.began(url, self.clock() - exchange.arrived)
        if self.chosen is not None:
            try:
                self.chosen(exchange)
            except Exception:
                self.counts["stage_faults"] += 1

    def _chunk(self, exchange: Exchange, data: bytes) -> None:
        for stage in self.stages:
            try:
                stage.chunk(exchange, data)
            except Exception:
                self.counts["stage_faults"] += 1

    def _leave(self, exchange: Exchange, how: str) -> None:
        for stage in self.stages:
            try:
                stage.leave(exchange, how)
            except Exception:
                self.counts["stage_faults"] += 1
        exchange.sent_off = None
        exchange.body, exchange.sent, exchange.headers = {}, {}, {}  # whoever keeps the exchange keeps no prompt
