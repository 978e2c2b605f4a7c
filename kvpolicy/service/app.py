"""The gateway as one application: FastAPI for our own routes, the proxy for everything else.

Made from a configuration by `kvp serve`; `stages` are the parts that see exchanges, in their order.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import orjson
from fastapi import APIRouter, FastAPI, Request, Response

from kvpolicy import __version__
from kvpolicy.faults import KvpError
from kvpolicy.service.beside import running
from kvpolicy.service.config import Config
from kvpolicy.service.edge import Refusal
from kvpolicy.service.exchange import Stage
from kvpolicy.service.isolation import Mint
from kvpolicy.service.probing import Probing
from kvpolicy.service.proxy import Proxy
from kvpolicy.service.tenants import Tenants
from kvpolicy.service.upstreams import Upstreams


@dataclass(slots=True)
class Gateway:
    """What the routes share."""

    config: Config
    proxy: Proxy
    upstreams: Upstreams
    tenants: Tenants
    clock: Callable[[], float] = time.monotonic

    def unready(self) -> str | None:
        """Why requests should not come here; None: they should."""
        if self.proxy.draining:
            return "draining"
        return self.upstreams.unready()

    async def stop(self) -> None:
        """Take no new requests, and wait for those that run, as long as the configuration says."""
        self.proxy.draining = True
        ends = self.clock() + self.config.limits.drain_s
        while self.proxy.running and self.clock() < ends:
            await asyncio.sleep(0.05)


def make_gateway(
    config: Config,
    stages: Sequence[Stage] = (),
    clock: Callable[[], float] = time.monotonic,
    mint: Mint | None = None,
) -> tuple[FastAPI, Gateway]:
    """The application and what is behind it. mint: salts. Raises InputFault for a configuration that cannot be."""
    tenants, upstreams = Tenants(config), Upstreams(config.upstream, config.limits)
    gateway = Gateway(config, Proxy(config, tenants, upstreams, stages, clock, mint), upstreams, tenants, clock)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        probing = Probing(upstreams, clock)
        await probing.first()
        async with running(probing.run()):
            yield
            await gateway.stop()
        await gateway.upstreams.close()

    app = FastAPI(title="kvpolicy", version=__version__, lifespan=lifespan)
    app.add_exception_handler(Refusal, _refused)
    app.add_exception_handler(KvpError, _refused)

    @app.head("/healthz", include_in_schema=False)
    @app.get("/healthz")
    async def healthz() -> Response:
        """Whether the process lives."""
        return Response("ok\n", media_type="text/plain")

    @app.head("/readyz", include_in_schema=False)
    @app.get("/readyz")
    async def readyz() -> Response:
        """Whether requests should come here."""
        why = gateway.unready()
        return Response(f"{why or 'ok'}\n", 503 if why else 200, media_type="text/plain")

    return app, gateway


def mount(app: FastAPI, gateway: Gateway, *routers: APIRouter) -> None:
    """Our own routes first; every other path is the proxy's."""
    for router in routers:
        app.include_router(router)
    app.mount("/", gateway.proxy)


async def _refused(_: Request, fault: Exception) -> Response:
    """A fault of what was asked, in words."""
    status = fault.status if isinstance(fault, Refusal) else 400
    kind = fault.kind if isinstance(fault, Refusal) else "invalid_request_error"
    headers = fault.headers if isinstance(fault, Refusal) else {}
    error = {"type": kind, "message": str(fault), "param": None, "code": None}
    return Response(orjson.dumps({"error": error}), status, headers, "application/json")
