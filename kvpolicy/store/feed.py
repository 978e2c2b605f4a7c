"""Records on their way: out to the server, back from it, and to whoever takes them.

A record told here comes back with all others, in the order that everybody sees. Where the server does not answer in
time it is delivered at once, goes out when the server is back, and is not delivered again then. Called by any thread;
`link` moves the records.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass

from kvpolicy.store.contract import Gap
from kvpolicy.store.log import Seen
from kvpolicy.store.record import Record, shard_of
from kvpolicy.store.stream import Stream

MOST_OUT = 20_000  # records that wait for the server
MOST_IN = 50_000  # records that wait to be taken; beyond, reading stops, and what is trimmed meanwhile is a gap


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A record as it is sent."""

    shard: int
    key: str
    data: bytes


class Feed:
    """The records of one replica."""

    def __init__(self, shards: int, counters: Counter[str], most_out: int = MOST_OUT) -> None:
        self.streams = tuple(Stream(shard) for shard in range(shards))
        self._counters = counters
        self._most_out = most_out
        self._lock = threading.Lock()
        self._out: deque[Outgoing] = deque()
        self._mine: dict[str, tuple[int, Record]] = {}  # told, not yet delivered: ticket and record
        self._early: set[str] = set()  # delivered before the server had them
        self._in: deque[Record | Gap] = deque()
        self._seen = Seen()
        self._ticket = 0
        self._waiting: list[tuple[int, Future[bool]]] = []

    def append(self, record: Record, data: bytes, wait: bool, now: float) -> None:
        """A record with its time and key. wait: the server is there, so its order is waited for."""
        key = record.key or ""
        with self._lock:
            if not self._seen.first(key, now):
                self._counters["duplicates"] += 1
                return
            self._counters["appended"] += 1
            self._ticket += 1
            self._mine[key] = (self._ticket, record)
            self._out.append(Outgoing(shard_of(record.owner, len(self.streams)), key, data))
            if len(self._out) > self._most_out:
                lost = self._out.popleft().key  # others never hear of it; here it counts
                self._counters["dropped"] += 1
                self._deliver(lost)
                self._early.discard(lost)
            if not wait:
                self._deliver(key)

    def take(self, limit: int) -> list[Record | Gap]:
        """The oldest that arrived."""
        with self._lock:
            return [self._in.popleft() for _ in range(min(limit, len(self._in)))]

    def settled(self) -> Future[bool]:
        """Done when all that was told so far has been delivered; False: ahead of the server."""
        future: Future[bool] = Future()
        with self._lock:
            if self._mine:
                self._waiting.append((self._ticket, future))
            else:
                future.set_result(True)
        return future

    def deliver_early(self) -> None:
        """Nobody waits any longer for the server."""
        with self._lock:
            for key in list(self._mine):
                self._deliver(key)
            self._settle(False)

    # --- for the link -------------------------------------------------------------------------------------

    def outgoing(self, most: int) -> list[Outgoing]:
        """The next to be sent, the oldest first."""
        with self._lock:
            return [self._out.popleft() for _ in range(min(most, len(self._out)))]

    def unsent(self, records: Iterable[Outgoing]) -> None:
        """These may not have reached the server: they are sent again, which counts once."""
        with self._lock:
            self._out.extendleft(reversed(list(records)))

    @property
    def has_outgoing(self) -> bool:
        """Whether anything waits for the server."""
        return bool(self._out)

    @property
    def takes_more(self) -> bool:
        """Whether there is room for records that arrive."""
        return len(self._in) < MOST_IN

    def arrived(self, records: Iterable[Record | Gap], now: float) -> None:
        """What a stream told, in its order."""
        with self._lock:
            for record in records:
                if isinstance(record, Gap):
                    self._counters["gaps"] += 1
                    self._counters["lost"] += record.lost or 0
                    self._in.append(record)
                    continue
                key = record.key or ""
                if self._mine.pop(key, None) is not None:
                    self._in.append(record)
                elif key in self._early:
                    self._early.discard(key)
                elif self._seen.first(key, now):
                    self._in.append(record)
            self._settle(True)

    def give_up(self) -> None:
        """All that the streams hold was read: what was sent and has not come back will not. It was trimmed, or the
        server knew its key from before. Here it counts all the same."""
        with self._lock:
            if not self._mine:
                return
            waiting = {record.key for record in self._out}
            for key in [key for key in self._mine if key not in waiting]:
                self._deliver(key)
                self._early.discard(key)
            self._settle(True)

    def _deliver(self, key: str) -> None:
        told = self._mine.pop(key, None)
        if told is not None:
            self._in.append(told[1])
            self._early.add(key)

    def _settle(self, well: bool) -> None:
        first = next(iter(self._mine.values()), (self._ticket + 1, None))[0]
        still = []
        for ticket, future in self._waiting:
            if ticket >= first:
                still.append((ticket, future))
            elif future.set_running_or_notify_cancel():
                future.set_result(well)
        self._waiting = still
