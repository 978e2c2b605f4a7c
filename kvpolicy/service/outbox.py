"""What engines are to be told, in its order, for as long as an engine has no room for it.

Between `holding`, which says it, and `channels`, which sends it. A channel drops what it has no room for, the oldest
first; so what an event that reaches many owners brings about waits here instead, as little more than references. Where
an engine has room, which is nearly always, a message goes on at once.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from kvpolicy.request import Owner

MOST = 500_000  # messages that wait for one engine; then the oldest go, and are counted
WITHIN_S = 0.002  # for what is sent in one step, while no request goes on


@dataclass(frozen=True, slots=True)
class Said:
    """One message. do: plan, event or end, with what that needs. noticed: of an event that nobody told of."""

    do: str
    owner: Owner
    request: str | None = None
    payload: Mapping[str, Any] | None = None
    event: str | None = None
    lifetimes: tuple[str, ...] | None = None
    noticed: bool = False

    def as_json(self) -> dict[str, Any]:
        """As the channel takes it."""
        row: dict[str, Any] = {"do": self.do, "owner": fields_of(self.owner)}
        for name in ("request", "payload", "event"):
            value = getattr(self, name)
            if value is not None:
                row[name] = value
        if self.noticed:
            row["noticed"] = True
        return row if self.lifetimes is None else row | {"lifetimes": list(self.lifetimes)}


class Outbox:
    """send: a message to the engine at an address. has_room: whether that engine takes one more now. counts: `waited
    dropped`."""

    def __init__(self, send: Callable[[str, Mapping[str, Any]], None], has_room: Callable[[str], bool]) -> None:
        self._send, self._has_room = send, has_room
        self._waiting: dict[str, deque[Said]] = {}
        self.counts: Counter[str] = Counter()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def put(self, url: str, said: Said) -> None:
        """Tell an engine something. Never waits.

        # INVARIANT: an engine is told everything in the order in which it was said.
        """
        waiting = self._waiting.get(url)
        if waiting is None and self._has_room(url):
            self._send(url, said.as_json())
            return
        if waiting is None:
            waiting = self._waiting[url] = deque()
        waiting.append(said)
        self.counts["waited"] += 1
        if len(waiting) > MOST:
            waiting.popleft()
            self.counts["dropped"] += 1

    def pump(self, within_s: float = WITHIN_S) -> bool:
        """Send what there is room for, for so long at most. Returns whether something could go on at once."""
        ends, more = perf_counter() + within_s, False
        for url, waiting in list(self._waiting.items()):
            while waiting and self._has_room(url):
                if perf_counter() > ends:
                    more = True
                    break
                self._send(url, waiting.popleft().as_json())
            if not waiting:
                del self._waiting[url]
        return more

    def clear(self) -> None:
        """Forget what waits: something takes it all back."""
        self._waiting.clear()


def fields_of(owner: Owner) -> dict[str, str]:
    """An owner as the channel's messages name it."""
    named = {name: getattr(owner, name) for name in ("tenant", "session", "run", "agent", "branch")}
    return {key: value for key, value in named.items() if value is not None}
