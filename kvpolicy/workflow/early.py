"""Events that came before what they are about: a fork that is announced before the branch's first request, a result
that overtook its call.

`state` keeps an event here when it addresses nobody, and asks again when an owner appears or a call opens.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from kvpolicy.workflow.events import Event
from kvpolicy.workflow.life import Life
from kvpolicy.workflow.owners import agrees

LEAD_S = 3600.0  # how long an event waits for its owner
_KEPT = 256


class Early:
    """The latest events that found nobody, oldest first."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque(maxlen=_KEPT)
        self._results: dict[str, Event] = {}  # by call

    def keep(self, event: Event) -> None:
        """Keep an event that says whom it means. One that names a call is about a call that is over."""
        fields = event.attributes
        call = fields.get("call")
        names_call = call is not None and event.name != "tool_call"
        if event.name == "tool_result" and isinstance(call, str):
            self._results[call] = event
            if len(self._results) > _KEPT:
                del self._results[next(iter(self._results))]
        if not names_call and any(fields.get(f) is not None for f in ("session", "run", "agent", "branch", "node")):
            self._events.append(event)

    def result_of(self, life: Life, event: Event) -> Event | None:
        """The result that came before this `tool_call` of `life`, if it did; it is given out once."""
        call = event.attributes.get("call")
        result = self._results.get(call) if isinstance(call, str) else None
        if result is None or not event.at <= result.at < event.at + LEAD_S or not agrees(life, result):
            return None
        return self._results.pop(str(call))

    def meant_for(self, life: Life, now: float) -> Iterator[Event]:
        """Those that address `life`, in order of their coming. What has waited too long is dropped."""
        if not self._events:
            return
        kept = [event for event in self._events if event.at + LEAD_S >= now]
        if len(kept) < len(self._events):
            self._events = deque(kept, maxlen=_KEPT)
        yield from (event for event in kept if agrees(life, event))
