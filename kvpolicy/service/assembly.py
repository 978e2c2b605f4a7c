"""The gateway put together from its configuration: store, run state, policies, stages, channels, and what runs beside.

Called by `kvp serve`, and by tests that want one in their own process.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from fastapi import FastAPI

from kvpolicy.adapter import find_adapter
from kvpolicy.policy.policy import Policy
from kvpolicy.service import beside
from kvpolicy.service.admin import make_admin
from kvpolicy.service.app import Gateway, make_gateway, mount
from kvpolicy.service.channels import Channels
from kvpolicy.service.config import Config
from kvpolicy.service.decisions import Decisions
from kvpolicy.service.doctor import Doctor
from kvpolicy.service.exchange import Stage
from kvpolicy.service.following import Following, Source, wanted
from kvpolicy.service.holding import REACHED_AT_ONCE, Holding
from kvpolicy.service.inpath import InPath
from kvpolicy.service.isolation import load_secret
from kvpolicy.service.lasting import LastingPolicies, LastingTimes
from kvpolicy.service.minting import minting
from kvpolicy.service.outbox import Outbox
from kvpolicy.service.own_routes import Entrance
from kvpolicy.service.planning import Planning
from kvpolicy.service.policies import Policies
from kvpolicy.service.reloading import Reloading
from kvpolicy.service.residents import Residents
from kvpolicy.service.routes import make_routes
from kvpolicy.service.routing import Routing
from kvpolicy.service.telling import Alone, Telling, Together
from kvpolicy.service.tokenizing import Tokenizing
from kvpolicy.service.unheard import watching as watching_channels
from kvpolicy.service.watching import measured, watchers
from kvpolicy.service.workflows import Workflows, make_workflows
from kvpolicy.store import Settings, open_store
from kvpolicy.store.awaited import AwaitedStore
from kvpolicy.workflow.state import RunState

ENGINE = "vllm"
log = logging.getLogger("kvpolicy.service")


def assemble(  # noqa: PLR0915 - a list of parts
    config: Config, clock: Callable[[], float] | None = None, source: Source | None = None
) -> tuple[FastAPI, Gateway]:
    """The whole gateway. clock: seconds; by default the store's where replicas share one, else this machine's own.
    source: of the configuration, where tenants and keys follow it. Raises PolicyFault or InputFault for what cannot
    be."""
    store = open_store(config.store.redis, Settings(prefix=config.store.prefix), config.store.file)
    awaited = AwaitedStore(store)
    shared = config.store.redis is not None
    clock = clock or (store.now if shared else time.monotonic)
    secret = load_secret(config.secret_file)
    mint = minting(config, store, secret)

    state = RunState()

    def all_tenants() -> tuple[str, ...]:
        return tuple({*gateway.tenants.names, *state.learned.tenants()})

    workflows = Workflows(state, awaited, all_tenants)
    unheard = watching_channels(config, log.warning)

    def came(policy: Policy) -> None:
        state.watch(policy.intervals)
        workflows.of_policy(policy)
        unheard(policy)

    policies = Policies(config.policy, wanted(config), came)
    planning = Planning(state, find_adapter(ENGINE), config.limits.decide_within_s)
    channels = Channels(config.upstream, ENGINE)
    outbox = Outbox(channels.send, channels.has_room)
    holding = Holding(planning, outbox.put)
    state.at_once, state.reached = REACHED_AT_ONCE, holding.reached
    together = Together(awaited, state, holding.happened, holding.let_go) if shared else None
    telling: Telling = Alone(state) if together is None else together
    residents = Residents(config.upstream, ENGINE, clock)
    size = residents.size_for
    decisions = Decisions(policies, planning, holding, telling, mint, secret, clock, block_size=size)
    doctor = Doctor(secret)
    watching = watchers(config, secret, clock)
    stages: list[Stage] = [decisions, doctor, *watching]
    app, gateway = make_gateway(config, stages, clock, mint)
    gateway.proxy.chosen, gateway.proxy.look, decisions.heard = decisions.chosen, decisions.look, channels.state

    def release_all() -> int:
        outbox.clear()  # what waits would protect again
        return channels.release_all()

    routing = Routing(config.routing, gateway.upstreams, awaited, residents, clock)
    stages.insert(1, routing)
    tokenizing = Tokenizing(gateway.upstreams, clock)
    decisions.fetch, decisions.placed = tokenizing.fetch, (residents.learn, doctor.placed)
    reloading = Reloading(policies, time.monotonic)
    lasting = LastingPolicies(awaited, policies)

    async def brought() -> None:
        reloading.follow()
        await lasting.agree()

    following = Following(source, gateway, policies, brought, time.monotonic)

    async def signalled() -> None:
        await following.signalled()
        await reloading.signalled()

    times = LastingTimes(awaited, state.learned, f"{config.store.prefix}@{socket.gethostname()}")

    parts: dict[str, Any] = {
        "proxy": gateway.proxy, "decisions": decisions, "holding": holding, "channels": channels, "doctor": doctor,
        "routing": routing, "telling": together, "store": store, "tokenizing": tokenizing, "residents": residents,
        "outbox": outbox, "following": following,
        "journal": next((each for each in watching if each.name == "journal"), None),
    }  # fmt: skip
    decisions.metrics = measured(app, gateway, parts)
    for admission in (gateway.proxy.admission, gateway.proxy.own_admission):
        admission.replicas = lambda: store.replicas
    entrance = Entrance(gateway.tenants, config.limits, gateway.proxy.own_admission)
    mount(
        app,
        gateway,
        make_routes(decisions, entrance, channels.ask, doctor.of_tenant),
        make_workflows(workflows, entrance),
        make_admin(lambda: gateway.config.admin, policies, release_all, reloading.reload, following, entrance),
    )
    inner = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(application: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            stack.push_async_callback(awaited.close)
            stack.push_async_callback(lasting.close)
            stack.push_async_callback(times.keep)
            stack.push_async_callback(tokenizing.close)
            stack.callback(channels.close)
            stack.callback(residents.close)
            for each in watching:
                stack.callback(each.close)
            residents.start()
            await lasting.start()
            jobs = [
                beside.tick(holding, outbox, clock),
                beside.forget(decisions.sessions, state, holding, clock),
                reloading.run(),
                following.run(),
                lasting.run(),
                times.run(all_tenants),
                workflows.run(),
            ]
            if together is not None:
                jobs.append(beside.hear(together, holding, clock))
            await stack.enter_async_context(beside.running(*jobs))
            await stack.enter_async_context(beside.signalled(signalled))
            await stack.enter_async_context(inner(application))
            yield

    app.router.lifespan_context = lifespan
    app.add_middleware(InPath)
    return app, gateway
