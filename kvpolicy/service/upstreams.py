"""The engines behind the gateway: which are there, which takes a request, and how one is reached.

`proxy` asks for candidates, best first; a stage's wish (residency, a pinned session) comes before the least loaded.
One that refuses connections rests for a while and is tried last.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from kvpolicy.service.config import Limits, Upstream
from kvpolicy.service.edge import Refusal

REST_S = (1.0, 30.0)  # after a failed connection: first, and longest


@dataclass(slots=True)
class Engine:
    """One upstream. running: requests that it has from us. resting_until: seconds on the service's clock."""

    settings: Upstream
    client: httpx.AsyncClient
    running: int = 0
    failures: int = 0
    resting_until: float = 0.0

    @property
    def url(self) -> str:
        """Its base address, also its name among upstreams."""
        return self.settings.url

    def failed(self, now: float) -> None:
        """It did not take a connection: leave it alone for a while, longer each time."""
        self.failures += 1
        self.resting_until = now + min(REST_S[0] * 2 ** (self.failures - 1), REST_S[1])

    def worked(self) -> None:
        """It took one."""
        self.failures = 0
        self.resting_until = 0.0


class Upstreams:
    """All of them, in the order of the configuration."""

    def __init__(self, settings: Sequence[Upstream], limits: Limits) -> None:
        self.engines = [Engine(each, _client(each, limits)) for each in settings]
        self._by_url = {engine.url: engine for engine in self.engines}

    def of(self, url: str) -> Engine | None:
        """The upstream at an address."""
        return self._by_url.get(url)

    def candidates(self, model: str | None, prefer: Sequence[str], now: float) -> list[Engine]:
        """Those that may take a request for `model`, best first: as wished, then the least loaded; resting ones last.

        Raises Refusal where no upstream serves the model."""
        able = [e for e in self.engines if not e.settings.models or model is None or model in e.settings.models]
        if not able:
            raise Refusal(404, "not_found_error", f"no upstream serves the model {model!r}")
        wish = {url: place for place, url in enumerate(prefer)}
        last = len(wish)
        return sorted(able, key=lambda e: (e.resting_until > now, wish.get(e.url, last), e.running))

    async def close(self) -> None:
        """Close every connection."""
        for engine in self.engines:
            await engine.client.aclose()


def _client(settings: Upstream, limits: Limits) -> httpx.AsyncClient:
    verify: Any = True
    if settings.url.startswith("https://") and settings.ca_file is not None:
        verify = ssl.create_default_context(cafile=settings.ca_file)
    return httpx.AsyncClient(
        base_url=settings.url,
        verify=verify,
        trust_env=False,  # where requests go is the operator's word alone
        follow_redirects=False,
        timeout=httpx.Timeout(limits.idle_s, connect=limits.connect_s, pool=limits.first_byte_s),
        limits=httpx.Limits(max_connections=limits.connections, max_keepalive_connections=limits.connections),
    )
