"""The gateway put together from its configuration: run state, policies, stages, channels, and what runs beside them.

Called by `kvp serve`, and by tests that want one in their own process.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial

from fastapi import FastAPI, Response

from kvpolicy.adapter import find_adapter
from kvpolicy.service.admin import make_admin
from kvpolicy.service.app import Gateway, make_gateway, mount
from kvpolicy.service.channels import Channels
from kvpolicy.service.config import Config
from kvpolicy.service.decisions import Decisions
from kvpolicy.service.doctor import Doctor
from kvpolicy.service.exchange import Stage
from kvpolicy.service.holding import Holding
from kvpolicy.service.isolation import load_secret, mint
from kvpolicy.service.journal import Journal
from kvpolicy.service.metrics import CONTENT_TYPE, Metrics, Parts
from kvpolicy.service.policies import Policies
from kvpolicy.service.routes import make_routes
from kvpolicy.service.tokenizing import Tokenizing
from kvpolicy.workflow.state import RunState

ENGINE = "vllm"
LONGEST_TICK_S = 1.0


def assemble(config: Config, clock: Callable[[], float] = time.monotonic) -> tuple[FastAPI, Gateway]:
    """The whole gateway. Raises PolicyFault or InputFault for what cannot be."""
    adapter = find_adapter(ENGINE)
    state = RunState()
    tenants = {section.name: section.policy for section in config.tenant if section.policy is not None}
    policies = Policies(config.policy, tenants, lambda policy: state.watch(policy.intervals))
    secret = load_secret(config.secret_file)
    channels = Channels(config.upstream, ENGINE)
    holding = Holding(state, adapter, channels.send)
    decisions = Decisions(policies, state, holding, adapter, partial(mint, secret), secret, clock)
    doctor = Doctor(secret)
    journal = None if config.log.decisions is None else Journal(config.log.decisions, config.log.sample, secret, clock)
    stages: list[Stage] = [decisions, doctor, *(() if journal is None else (journal,))]
    app, gateway = make_gateway(config, stages, clock, partial(mint, secret))
    metrics = Metrics()
    metrics.watch(Parts(metrics, {"proxy": gateway.proxy, "decisions": decisions, "holding": holding}))
    decisions.metrics = metrics

    @app.get("/metrics")
    async def exposition() -> Response:
        """For Prometheus."""
        return Response(metrics.exposition(), media_type=CONTENT_TYPE)

    mount(
        app,
        gateway,
        make_routes(decisions, gateway.tenants, config.limits.body_bytes),
        make_admin(config.admin, policies, channels.release_all),
    )
    tokenizing = Tokenizing(gateway.upstreams, clock)
    decisions.fetch = tokenizing.fetch

    inner = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(application: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            ticking = asyncio.get_running_loop().create_task(_tick(holding, clock))
            stack.push_async_callback(tokenizing.close)
            stack.callback(channels.close)
            stack.callback(ticking.cancel)
            if journal is not None:
                stack.callback(journal.close)
            await stack.enter_async_context(inner(application))
            yield

    app.router.lifespan_context = lifespan
    return app, gateway


async def _tick(holding: Holding, clock: Callable[[], float]) -> None:
    """Plans are read again when they are due, whether requests come or not."""
    while True:
        wait = LONGEST_TICK_S
        with suppress(Exception):
            wait = min(max(holding.tick(clock()), 0.01), LONGEST_TICK_S)
        await asyncio.sleep(wait)
