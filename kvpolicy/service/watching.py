"""What watches the gateway: the decision log, traces, and metrics with their route.

Made by `assembly`. The first two are stages behind those that decide, so that they see what came of it; metrics are
read from the parts' own counters when somebody asks who may: they name tenants.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from fastapi import FastAPI, Request, Response

from kvpolicy.service.admin import allow_metrics
from kvpolicy.service.app import Gateway
from kvpolicy.service.config import Config
from kvpolicy.service.families import Parts
from kvpolicy.service.isolation import hashed
from kvpolicy.service.journal import Journal
from kvpolicy.service.metrics import CONTENT_TYPE, Metrics
from kvpolicy.service.tracing import Tracing


def watchers(config: Config, secret: bytes, clock: Callable[[], float]) -> list[Journal | Tracing]:
    """Those that the configuration asks for. Raises InputFault for a file that cannot be written, a missing extra."""
    found: list[Journal | Tracing] = []
    if config.log.decisions is not None:
        found.append(Journal(config.log.decisions, config.log.sample, secret, clock))
    if config.trace.endpoint is not None:
        found.append(Tracing(config.trace, partial(hashed, secret)))
    return found


def measured(app: FastAPI, gateway: Gateway, parts: Mapping[str, Any]) -> Metrics:
    """Metrics of the gateway and its parts, and `GET /metrics`."""
    metrics = Metrics()
    engines = {e.url: metrics.first_byte.labels(e.settings.name or e.url) for e in gateway.upstreams.engines}
    gateway.proxy.decided = metrics.decide.observe
    gateway.proxy.began = lambda url, seconds: engines[url].observe(seconds)
    metrics.watch(Parts(metrics, parts))

    @app.get("/metrics")
    async def exposition(request: Request) -> Response:
        """For Prometheus."""
        admin = gateway.config.admin
        if not (gateway.config.open or admin.metrics_open):
            allow_metrics(admin, request)
        return Response(metrics.exposition(), media_type=CONTENT_TYPE)

    return metrics
