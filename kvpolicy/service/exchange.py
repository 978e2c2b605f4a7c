"""One request on its way through the gateway, and what stages may do with it.

Made by `proxy` once the tenant is known and the body is read; `meaning` and `decisions` change what is sent on, and
watch the answer. A stage that raises is counted and the exchange goes on as if it were not there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from kvpolicy.service.tenants import Tenant

CHAT, COMPLETIONS, RESPONSES, MESSAGES = "chat", "completions", "responses", "messages"
# Requests that a model answers; every other path is passed on untouched.
DIALECTS: Mapping[str, str] = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": COMPLETIONS,
    "/v1/responses": RESPONSES,
    "/v1/messages": MESSAGES,
}
DONE, CANCELLED, FAILED = "done", "cancelled", "failed"


@dataclass(slots=True)
class Exchange:
    """id: ours, unique. dialect: of its route. headers: the client's, lower-case names, several lines joined by a
    comma. body: the client's JSON object; stages replace `sent`, never change `body`. arrived: seconds on the service's
    clock. notes: what a stage keeps for itself, by its name. answer_headers: told to the client. engine: the address
    that it was sent to last; sent_off: called whenever that is known. upstream: the address that answers; prefer:
    addresses in order of wish, best first. salt: isolation that must hold whatever else fails."""

    id: str
    dialect: str
    tenant: Tenant
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    arrived: float
    stream: bool = False
    sent: dict[str, Any] = field(default_factory=dict)
    sent_headers: dict[str, str] = field(default_factory=dict)
    answer_headers: dict[str, str] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)
    prefer: tuple[str, ...] = ()
    engine: str | None = None
    sent_off: Callable[[Exchange], object] | None = None
    upstream: str | None = None
    status: int = 0


class Stage(Protocol):
    """A part of the gateway that sees exchanges. `enter` is awaited before the request goes out, within the time that
    the configuration gives it; the others are called as the answer comes and must be quick."""

    name: str

    async def enter(self, exchange: Exchange) -> None:
        """The request came. May set `sent`, `sent_headers`, `answer_headers`, `prefer`."""
        ...

    def chunk(self, exchange: Exchange, data: bytes) -> None:
        """A piece of a good answer's body, as it came."""
        ...

    def leave(self, exchange: Exchange, how: str) -> None:
        """The exchange ended: DONE, CANCELLED by the client, or FAILED at the upstream. Called once."""
        ...
