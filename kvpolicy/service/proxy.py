"""The reverse proxy: an ASGI application that passes requests on and answers back, byte for byte.

A model request becomes an `Exchange` that the stages see; every other path goes through as it came. What a stage does
wrong costs its hints and nothing else; isolation (a salt) is set before any stage runs. A client that leaves cancels
its request at the upstream.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any
from uuid import uuid4

import httpx
import orjson
from starlette.types import Receive, Scope, Send

from kvpolicy.service.config import Config
from kvpolicy.service.edge import HOP_BY_HOP, Refusal, joined, passed_on, read_body, refuse, stripped
from kvpolicy.service.exchange import CANCELLED, DIALECTS, DONE, FAILED, Exchange, Stage
from kvpolicy.service.tenants import Tenant, Tenants
from kvpolicy.service.upstreams import Engine, Upstreams

GOOD = 400  # answers below are watched
_OWN = frozenset({"content-length", "date", "server"})


class Proxy:
    """stages: in the order in which they see an exchange. clock: seconds. counts: `requests passed refused
    stage_faults stage_late upstream_faults retried cancelled`, and refusals by status."""

    def __init__(
        self,
        config: Config,
        tenants: Tenants,
        upstreams: Upstreams,
        stages: Sequence[Stage],
        clock: Callable[[], float],
    ) -> None:
        self.config, self.tenants, self.upstreams, self.stages, self.clock = config, tenants, upstreams, stages, clock
        self.counts: Counter[str] = Counter()
        self.running = 0
        self.draining = False
        self._prefix = uuid4().hex[:12]
        self._numbers = itertools.count()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        dialect = DIALECTS.get(scope["path"]) if scope["method"] == "POST" else None
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
        limits = self.config.limits
        if self.draining:
            raise Refusal(503, "overloaded_error", "the gateway is shutting down", {"retry-after": "1"})
        headers = joined(scope["headers"], limits.header_bytes)
        tenant = self.tenants.of(headers)
        if tenant is None:
            raise Refusal(401, "authentication_error", "a known API key is needed", {"www-authenticate": "Bearer"})
        data = await read_body(receive, limits.body_bytes, limits.client_idle_s, headers.get("content-length"))
        out = passed_on(headers, secret=not self.config.open)
        exchange = None
        if dialect is not None:
            self.counts["requests"] += 1
            exchange = await self._enter(dialect, tenant, headers, data, out)
            data = orjson.dumps(exchange.sent)
        else:
            self.counts["passed"] += 1
        await self._forward(scope, receive, send, out, data, exchange)

    # --- stages ---------------------------------------------------------------------------------------------------

    async def _enter(
        self, dialect: str, tenant: Tenant, headers: Mapping[str, str], data: bytes, out: dict[str, str]
    ) -> Exchange:
        try:
            body = orjson.loads(data)
        except orjson.JSONDecodeError as fault:
            raise Refusal(400, "invalid_request_error", f"the body is not JSON: {fault}") from None
        if not isinstance(body, dict):
            raise Refusal(400, "invalid_request_error", "the body must be a JSON object")
        exchange = Exchange(
            f"{self._prefix}-{next(self._numbers)}",
            dialect,
            tenant,
            headers,
            body,
            self.clock(),
            bool(body.get("stream")),
            stripped(body),
        )
        for stage in self.stages:
            try:
                await asyncio.wait_for(stage.enter(exchange), self.config.limits.decide_within_s)
            except Refusal:
                raise
            except TimeoutError:
                self.counts["stage_late"] += 1
            except Exception:
                self.counts["stage_faults"] += 1
        out.update(exchange.sent_headers)
        out["accept-encoding"] = "identity"  # the answer is read on the way
        return exchange

    def _chunk(self, exchange: Exchange, data: bytes) -> None:
        for stage in self.stages:
            try:
                stage.chunk(exchange, data)
            except Exception:
                self.counts["stage_faults"] += 1

    def _leave(self, exchange: Exchange | None, how: str) -> None:
        for stage in self.stages if exchange is not None else ():
            try:
                stage.leave(exchange, how)  # type: ignore[arg-type]
            except Exception:
                self.counts["stage_faults"] += 1
        if exchange is not None:  # whoever keeps the exchange keeps no prompt
            exchange.body, exchange.sent, exchange.headers = {}, {}, {}

    # --- there and back -------------------------------------------------------------------------------------------

    async def _forward(
        self, scope: Scope, receive: Receive, send: Send, out: dict[str, str], data: bytes, exchange: Exchange | None
    ) -> None:
        how = FAILED
        try:
            sending = asyncio.ensure_future(self._exchange(scope, send, out, data, exchange))
            leaving = asyncio.ensure_future(_left(receive))
            try:
                await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
                if not sending.done():
                    sending.cancel()
                    how = CANCELLED
                with suppress(asyncio.CancelledError):
                    if await sending:
                        how = DONE
            finally:
                leaving.cancel()
                sending.cancel()
                self.counts["cancelled"] += how == CANCELLED
        finally:
            self._leave(exchange, how)

    async def _exchange(
        self, scope: Scope, send: Send, out: dict[str, str], data: bytes, exchange: Exchange | None
    ) -> bool:
        """Whether the whole of a good answer went back."""
        model = None if exchange is None else exchange.body.get("model")
        prefer = () if exchange is None else exchange.prefer
        candidates = self.upstreams.candidates(model if isinstance(model, str) else None, prefer, self.clock())
        for place, engine in enumerate(candidates):
            engine.running += 1
            try:
                answer = await self._ask(engine, scope, out, data)
                if answer is None:  # nothing was sent: another may have it
                    self.counts["retried"] += place + 1 < len(candidates)
                    continue
                if exchange is not None:
                    exchange.upstream, exchange.status = engine.url, answer.status_code
                return await self._back(send, answer, exchange)
            finally:
                engine.running -= 1
        raise Refusal(502, "api_error", "no upstream takes connections", {"retry-after": "1"})

    async def _ask(self, engine: Engine, scope: Scope, out: dict[str, str], data: bytes) -> httpx.Response | None:
        """The beginning of an answer; None where no connection was made. Raises Refusal where one broke."""
        target = scope.get("raw_path") or scope["path"].encode()
        if scope["query_string"]:
            target += b"?" + scope["query_string"]
        request = engine.client.build_request(scope["method"], target.decode("latin-1"), headers=out, content=data)
        try:
            async with asyncio.timeout(self.config.limits.first_byte_s):
                answer = await engine.client.send(request, stream=True)
        except (httpx.ConnectError, httpx.ConnectTimeout):
            self.counts["upstream_faults"] += 1
            engine.failed(self.clock())
            return None
        except (TimeoutError, httpx.TimeoutException):
            self.counts["upstream_faults"] += 1
            raise Refusal(504, "timeout_error", "the upstream did not answer in time") from None
        except (httpx.HTTPError, httpx.InvalidURL):
            self.counts["upstream_faults"] += 1
            raise Refusal(502, "api_error", "the upstream ended the connection before it answered") from None
        engine.worked()
        return answer

    async def _back(self, send: Send, answer: httpx.Response, exchange: Exchange | None) -> bool:
        """Pass an answer on as it comes. A break on the way ends the client's connection without a clean end."""
        headers: list[tuple[bytes, bytes]] = [
            (name, value)
            for name, value in answer.headers.raw
            if name.lower().decode("latin-1") not in HOP_BY_HOP | (_OWN - {"content-length"})
        ]
        told: Mapping[str, Any] = {} if exchange is None else exchange.answer_headers
        headers += [(name.encode(), value.encode("latin-1", "replace")) for name, value in told.items()]
        watched = exchange is not None and answer.status_code < GOOD
        try:
            await send({"type": "http.response.start", "status": answer.status_code, "headers": headers})
            async for part in answer.aiter_raw():
                await send({"type": "http.response.body", "body": part, "more_body": True})
                if watched and exchange is not None:
                    self._chunk(exchange, part)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except httpx.HTTPError as fault:
            self.counts["upstream_faults"] += 1
            raise UpstreamBroke("the upstream ended the connection in the middle of its answer") from fault
        finally:
            with suppress(Exception):
                await answer.aclose()
        return answer.status_code < GOOD


class UpstreamBroke(Exception):
    """An answer that was begun cannot be ended: the server has to close the connection, not to end the body."""


async def _left(receive: Receive) -> None:
    """Until the client goes away."""
    while (await receive())["type"] != "http.disconnect":
        pass
