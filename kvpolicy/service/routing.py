"""Where a request goes: a session's own worker where a policy says `place: same_worker`, else where its prefix lies.

A stage behind `decisions`; it sets `exchange.prefer`, and `upstreams` has the last word. A pin is soft: it ends some
time after the session's last request, and gives way where its engine rests or has much more to do than another.
Without a pin, an engine is worth the tokens that it has, by their tier, less those that its running requests cost.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from kvpolicy.service.config import Routing as Settings
from kvpolicy.service.exchange import DONE, Exchange
from kvpolicy.service.isolation import SALT_FIELD
from kvpolicy.service.residents import Residents
from kvpolicy.service.seen import Seen
from kvpolicy.service.upstreams import Engine, Upstreams
from kvpolicy.store.awaited import AwaitedStore

SAME_WORKER = "same_worker"


class Routing:
    """counts: `pinned moved followed resident blind`."""

    name = "routing"

    def __init__(
        self,
        settings: Settings,
        upstreams: Upstreams,
        store: AwaitedStore,
        residents: Residents,
        clock: Callable[[], float],
    ) -> None:
        self._settings, self._upstreams, self._store = settings, upstreams, store
        self._residents, self._clock = residents, clock
        self.counts: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()

    async def enter(self, exchange: Exchange) -> None:
        """Say which engines are best."""
        seen: Seen | None = exchange.notes.get("decisions")
        if seen is None or len(self._upstreams.engines) < 2:
            return
        salt = exchange.sent.get(SALT_FIELD)
        found = self._residents.find(seen.conversation, salt) if self._residents else {}
        cost = self._settings.load_tokens
        engines = sorted(
            self._upstreams.engines,
            key=lambda e: e.running * cost - (found[e.url].worth if e.url in found else 0.0),
        )
        if found:
            self.counts["resident"] += 1
            exchange.prefer = tuple(engine.url for engine in engines)
        else:
            self.counts["blind"] += 1  # `upstreams` takes the one with the least to do
        if wants_same_worker(seen) and (session := session_of(seen)) is not None:
            pin = await self._store.pinned(seen.arrived.owner.tenant, session)
            engine = None if pin is None else self._upstreams.of(pin.worker)
            if engine is not None and self._takes(engine):
                self.counts["followed"] += 1
                exchange.prefer = (engine.url, *(url for url in exchange.prefer if url != engine.url))

    def chunk(self, exchange: Exchange, data: bytes) -> None:
        """Nothing to see."""

    def leave(self, exchange: Exchange, how: str) -> None:
        """Where it went is where its session is, from now on."""
        seen: Seen | None = exchange.notes.get("decisions")
        if exchange.upstream is not None:
            self._residents.sent(exchange.upstream)
        if seen is None or how != DONE or exchange.upstream is None or len(self._upstreams.engines) < 2:
            return
        if wants_same_worker(seen) and (session := session_of(seen)) is not None:
            pinning = self._pin(seen.arrived.owner.tenant, session, exchange.upstream)
            task = asyncio.create_task(pinning)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pin(self, tenant: str, session: str, url: str) -> None:
        """Beside the answer: nobody waits for the store."""
        pin = await self._store.pin(tenant, session, url, self._settings.pin_s, move=True)
        self.counts["pinned" if pin.fresh else "kept"] += 1

    def _takes(self, engine: Engine) -> bool:
        """Whether a pinned session goes to its engine, or elsewhere for once."""
        least = min(other.running for other in self._upstreams.engines)
        free = engine.resting_until <= self._clock() and engine.running - least <= self._settings.pin_slack
        self.counts["gave_way"] += not free
        return free


def wants_same_worker(seen: Seen) -> bool:
    """Whether its policy wants its owner's requests on one worker."""
    return seen.plan is not None and any(each.place == SAME_WORKER for each in seen.plan.directives)


def session_of(seen: Seen) -> str | None:
    """Under which name its owner is pinned: a branch goes with its session, as they share its blocks."""
    owner = seen.arrived.owner
    return owner.run if owner.run is not None else owner.session
