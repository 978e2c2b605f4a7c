"""The gateway as one application: FastAPI for our own routes, the proxy for everything else.

Made from a configuration by `kvp serve`; `stages` are the parts that see exchanges, in their order.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from fastapi import FastAPI, Response

from kvpolicy import __version__
from kvpolicy.service.config import Config
from kvpolicy.service.exchange import Stage
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


def make_gateway(
    config: Config, stages: Sequence[Stage] = (), clock: Callable[[], float] = time.monotonic
) -> tuple[FastAPI, Gateway]:
    """The application and what is behind it. Raises InputFault for a configuration that cannot be."""
    tenants, upstreams = Tenants(config), Upstreams(config.upstream, config.limits)
    gateway = Gateway(config, Proxy(config, tenants, upstreams, stages, clock), upstreams, tenants, clock)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await drain(gateway)

    app = FastAPI(title="kvpolicy", version=__version__, lifespan=lifespan)

    @app.get("/healthz")
    async def healthz() -> Response:
        """Whether the process lives."""
        return Response("ok\n", media_type="text/plain")

    @app.get("/readyz")
    async def readyz() -> Response:
        """Whether requests should come here."""
        if gateway.proxy.draining:
            return Response("draining\n", 503, media_type="text/plain")
        return Response("ok\n", media_type="text/plain")

    app.mount("/", gateway.proxy)
    return app, gateway


async def drain(gateway: Gateway) -> None:
    """Take no new requests, and wait for those that run, as long as the configuration says."""
    gateway.proxy.draining = True
    ends = gateway.clock() + gateway.config.limits.drain_s
    while gateway.proxy.running and gateway.clock() < ends:
        await asyncio.sleep(0.05)
    await gateway.upstreams.close()
