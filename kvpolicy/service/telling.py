"""Who hears what happens to owners: this process's run state alone, or all replicas through a store.

`decisions` tells it of requests, answers and events, and gets back whose plans are to be read again. `Alone` applies
what it is told at once. `Together` tells all replicas and applies what they tell, own records included, in the store's
one order; `apply_news` takes what others told meanwhile. An owner's plans are the affair of the replica that served its
newest request: the others let go of theirs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Any, Protocol
from uuid import uuid4

from kvpolicy.request import Owner, Request
from kvpolicy.store.awaited import AwaitedStore
from kvpolicy.store.contract import Gap
from kvpolicy.store.record import Record
from kvpolicy.store.replica import Replica, answer_record, cancel_record, event_record, request_record
from kvpolicy.workflow.events import Event
from kvpolicy.workflow.spreading import Spread
from kvpolicy.workflow.state import RunState, ToolCall

SETTLE_S = 0.008  # of a request's 20 ms; the in-process state answers then
_MOST = 64  # parts of a list in a record


class Telling(Protocol):
    """See the module. Each returns the owners to be planned again. rest: of the event that was observed last, where it
    is still on its way to many; None: it is not."""

    rest: Spread | None

    async def arrive(self, request: Request, now: float, results: Sequence[str] | None) -> tuple[Owner, ...]:
        """A request came."""
        ...

    async def observe(self, event: Event, owner: Owner | None) -> tuple[Owner, ...] | None:
        """An event; the owners that it reached. None: that is not known yet."""
        ...

    def note(self, event: Event, owner: Owner | None) -> tuple[Owner, ...]:
        """The same, where nobody waits for what it reached: the owners of whom that is known at once."""
        ...

    def touched(self, request: Request, now: float) -> tuple[Owner, ...]:
        """A request has its prompt: its answer began."""
        ...

    def answer(
        self, request: Request, now: float, calls: Sequence[ToolCall], finished: bool | None, output: int | None
    ) -> tuple[Owner, ...]:
        """An answer is done."""
        ...

    def cancel(self, request: Request, now: float) -> tuple[Owner, ...]:
        """A request was withdrawn."""
        ...


class Alone:
    """This process."""

    def __init__(self, state: RunState) -> None:
        self._state = state
        self.rest: Spread | None = None

    async def arrive(self, request: Request, now: float, results: Sequence[str] | None) -> tuple[Owner, ...]:
        """See `Telling`."""
        return self._state.arrive(request, now, results)

    async def observe(self, event: Event, owner: Owner | None) -> tuple[Owner, ...]:
        """See `Telling`."""
        reached = self._state.observe(event, owner)
        self.rest = self._state.rest
        return reached

    def note(self, event: Event, owner: Owner | None) -> tuple[Owner, ...]:
        """See `Telling`."""
        return self._state.observe(event, owner)

    def touched(self, request: Request, now: float) -> tuple[Owner, ...]:
        """See `Telling`."""
        return self._state.touched(request.id, now)

    def answer(
        self, request: Request, now: float, calls: Sequence[ToolCall], finished: bool | None, output: int | None
    ) -> tuple[Owner, ...]:
        """See `Telling`."""
        return self._state.answer(request, now, tool_calls=calls, finished=finished, output_tokens=output)

    def cancel(self, request: Request, now: float) -> tuple[Owner, ...]:
        """See `Telling`."""
        return self._state.cancel(request.id, now)


class Together:
    """store: that replicas share. happened: told of an event that nobody here waits for (another replica's, or one of
    ours that came late) with whom it reached; left: of an owner whose newest request another replica serves. counts:
    `told foreign late refused`."""

    def __init__(
        self,
        store: AwaitedStore,
        state: RunState,
        happened: Callable[[Event, Iterable[Owner]], None],
        left: Callable[[Owner, str | None], None],
    ) -> None:
        self._store = store
        self._state = state
        self._replica = _Replica(store.store, state, self._applied)
        self._happened, self._left = happened, left
        self._mine: set[str] = set()  # how ids of this process's requests begin
        # Of ours that somebody waits for, by key: whom they reached, and what of them is still on its way.
        self._events: dict[str, tuple[tuple[Owner, ...], Spread | None] | None] = {}
        self.rest: Spread | None = None
        self._own = uuid4().hex  # how keys of our events begin
        self._numbers = count()
        self._unread: dict[Owner, None] = {}  # that others changed, where whoever asked is told only whom it reached
        self.counts: Counter[str] = Counter()

    async def arrive(self, request: Request, now: float, results: Sequence[str] | None) -> tuple[Owner, ...]:
        """See `Telling`."""
        self._mine.add(_process(request.id))
        told = None if results is None else list(results)[:_MOST]
        return await self._tell(request_record(request, now, told))

    async def observe(self, event: Event, owner: Owner | None) -> tuple[Owner, ...] | None:
        """See `Telling`."""
        key = self._key()
        try:
            changed = await self._tell(event_record(event, owner, key))
        finally:
            found = self._events.pop(key, None)
        reached, self.rest = (None, None) if found is None else found
        self._later(changed, reached)
        return reached

    def note(self, event: Event, owner: Owner | None) -> tuple[Owner, ...]:
        """See `Telling`."""
        key = self._key()
        try:
            self._store.store.append(event_record(event, owner, key))
            changed = self.apply_news()
        finally:  # INVARIANT: for an event that comes later nobody waits, so that `happened` hears of it
            found = self._events.pop(key, None)
        reached = () if found is None else found[0]
        self._later(changed, reached)
        return reached

    def touched(self, request: Request, now: float) -> tuple[Owner, ...]:
        """See `Telling`."""
        self._store.store.append(Record("touched", request.owner, {"id": request.id}, now))
        return self.apply_news()

    def answer(
        self, request: Request, now: float, calls: Sequence[ToolCall], finished: bool | None, output: int | None
    ) -> tuple[Owner, ...]:
        """See `Telling`."""
        told = answer_record(request, now, tool_calls=list(calls)[:_MOST], finished=finished, output_tokens=output)
        self._store.store.append(told)
        return self.apply_news()

    def cancel(self, request: Request, now: float) -> tuple[Owner, ...]:
        """See `Telling`."""
        self._store.store.append(cancel_record(request, now))
        return self.apply_news()

    def apply_news(self) -> tuple[Owner, ...]:
        """Take what has come. Never waits. # INVARIANT: every owner that it changed is returned by this or a later
        call, or was reached by the event that took it."""
        changed = self._replica.catch_up()
        unread, self._unread = self._unread, {}
        return tuple(dict.fromkeys((*unread, *changed)))

    def _later(self, changed: Iterable[Owner], reached: Iterable[Owner] | None) -> None:
        """The next who takes news has these planned again."""
        self._unread |= dict.fromkeys(changed)
        for owner in reached or ():
            self._unread.pop(owner, None)

    async def _tell(self, record: Record) -> tuple[Owner, ...]:
        self._store.store.append(record)
        self.counts["told"] += 1
        if not await self._store.settle(SETTLE_S):
            self.counts["late"] += 1
        return self.apply_news()

    def _key(self) -> str:
        key = f"{self._own}-{next(self._numbers)}"
        self._events[key] = None
        return key

    def _applied(self, record: Record, changed: tuple[Owner, ...]) -> None:
        body: Any = record.body
        if record.kind == "event":
            if record.key in self._events:
                self._events[record.key] = changed, self._state.rest
                return
            self.counts["foreign"] += not (record.key or "").startswith(self._own)
            at = record.at if record.at is not None else 0.0
            self._happened(Event(at, str(body["event"]), dict(body["attributes"])), changed)
        elif record.kind == "request" and _process(str(body.get("id"))) not in self._mine:
            self.counts["foreign"] += 1
            model = body.get("model")
            self._left(record.owner, model if isinstance(model, str) else None)


def _process(request_id: str) -> str:
    """Whose request it is: the proxy begins all ids of one process alike."""
    return request_id.rpartition("-")[0]


class _Replica(Replica):
    """One that says what it applied, and that has the owner of each record planned again."""

    def __init__(self, store: Any, state: RunState, applied: Callable[[Record, tuple[Owner, ...]], None]) -> None:
        super().__init__(store, state)
        self._applied = applied

    def _one(self, record: Record | Gap) -> tuple[Owner, ...]:
        if isinstance(record, Gap):
            return super()._one(record)
        # What time brought about meanwhile is no work of the record: an event reached none of those.
        lapsed = () if record.at is None else self.state.advance(record.at)
        changed = super()._one(record)
        self._applied(record, changed)
        if record.kind in ("event", "touched"):
            return tuple(dict.fromkeys((*lapsed, *changed)))
        return tuple(dict.fromkeys((*lapsed, *changed, record.owner)))
