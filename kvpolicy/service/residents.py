"""Which engine has how much of a prompt: from the engines' KV events, by the blocks at the ends of a prompt's units.

A thread takes the events of every engine that publishes them (`kvpolicy.feeds` entry points). Where the tokens of a
prompt were asked from an engine anyway, the blocks at its units' ends get names by their tokens and salt; a prompt is
looked up by these names, the longest first. Look-ups renew nothing. The thread and the event loop share the residency
under one lock; a request waits for it no longer than `LONGEST_WAIT_S`, and is then routed without. Who asks for the
engines' states waits for nothing: while the thread is at it, they are those of its last turn's end.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, Protocol

from kvpolicy.faults import InputFault, install
from kvpolicy.residency import Residency
from kvpolicy.residency.holdings import root_key, token_key
from kvpolicy.service.config import Upstream
from kvpolicy.service.meaning.dialects import Conversation
from kvpolicy.service.meaning.offsets import Places

GROUP = "kvpolicy.feeds"
LOOK_S = 0.02
LONGEST_WAIT_S = 0.002  # of a request, for the thread: events of thousands of blocks may come at once
MOST_NAMES = 200_000
LIKELY = 16  # tokens a block, of an engine that has not told yet
TIERS: Mapping[str, float] = {"gpu": 1.0, "cpu": 0.8, "disk": 0.5, "remote": 0.3}


class Feed(Protocol):
    """One engine's stream of KV events."""

    def take(self, residency: Residency, now: float, wait_s: float = 0.0) -> object:
        """Apply what has come."""
        ...

    def close(self) -> None:
        """End it."""
        ...


@dataclass(frozen=True, slots=True)
class Found:
    """tokens: of the prompt's beginning that an engine has. weight: of the worst tier they lie in, 1.0 is the GPU."""

    tokens: int
    weight: float

    @property
    def worth(self) -> float:
        """Tokens, as if all lay in the GPU."""
        return self.tokens * self.weight


class Residents:
    """upstreams: those with `events` are watched. clock: seconds. counts: `faults looked found busy learned`."""

    def __init__(self, upstreams: Sequence[Upstream], engine: str, clock: Callable[[], float]) -> None:
        self.residency = Residency()
        self._lock = threading.Lock()  # INVARIANT: nobody sees the residency while a feed's events are half applied
        self._owing: dict[str, float] = {}  # engines that were sent requests since the thread looked last, and when
        self.counts: Counter[str] = Counter()
        self._clock = clock
        self._upstreams = tuple(upstreams)
        self._feeds: dict[str, Feed] = {}
        self._names: OrderedDict[tuple[str | None, bytes, str | None, int], tuple[int, bytes]] = OrderedDict()
        wanted = [each for each in upstreams if each.events is not None]
        if wanted:
            found = next((point for point in entry_points(group=GROUP) if point.name == engine), None)
            if found is None:
                raise InputFault(f"no KV events of engine '{engine}' can be read here")
            try:
                make: Any = found.load()
                for each in wanted:
                    self.residency.worker(each.url, clock(), block_size=each.block_size)
                    self._feeds[each.url] = make(each.url, each.events, each.replay)
            except ImportError as fault:
                raise InputFault(f"upstream.events needs {fault.name}: {install('events')}") from None
        self._stood: list[tuple[str, int, str]] = []  # states at the end of the thread's last turn; replaced as a whole
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def __bool__(self) -> bool:
        return bool(self._feeds)

    def start(self) -> None:
        """Take events from now on."""
        if self._feeds and self._thread is None:
            self._stood = self._states()
            self._thread = threading.Thread(target=self._run, name="kvpolicy-events", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stop."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(timeout=2)
        for feed in self._feeds.values():
            with suppress(Exception):
                feed.close()

    def sent(self, url: str) -> None:
        """A request went to an engine: it owes events. Waits for nobody."""
        if url in self._feeds:
            self._owing.setdefault(url, self._clock())

    def block_size(self, url: str) -> int | None:
        """Tokens a block: what the engine's events told last, the configuration until then. None: nobody has said."""
        known = self.residency.workers.get(url)
        return None if known is None else known.block_size

    def size_for(self, model: str | None) -> int:
        """Tokens a block of the engines that serve a model, by the first of them that has told or is configured; LIKELY
        until one has. Waits for nobody."""
        for each in self._upstreams:
            if not each.models or model is None or model in each.models:
                size = self.block_size(each.url) or each.block_size
                if size is not None:
                    return size
        return LIKELY

    def states(self) -> list[tuple[str, int, str]]:
        """Engine, rank and state (live, stale, no_events) of all that is watched. Waits for nobody."""
        if not self._lock.acquire(blocking=False):
            return list(self._stood)
        try:
            return self._states()
        finally:
            self._lock.release()

    def _states(self) -> list[tuple[str, int, str]]:
        """The same, under the lock."""
        self._owed()
        now = self._clock()
        return [
            (url, rank, self.residency.state(url, rank, now))
            for url in sorted(self._feeds)
            for rank in self.residency.ranks(url) or [0]
        ]

    def _owed(self) -> None:
        """Bring in what was sent. Under the lock."""
        for url in list(self._owing):
            self.residency.sent(url, self._owing.pop(url))

    # --- names ----------------------------------------------------------------------------------------------------

    def learn(self, conversation: Conversation, places: Places, salt: str | None) -> None:
        """Name the blocks at a prompt's units' ends, where its tokens were just asked."""
        tokens = places.tokens
        if not self._feeds or tokens is None:
            return
        for size in {self.block_size(url) or LIKELY for url in self._feeds}:
            ends = [
                (end // size * size, unit.digest)
                for unit, end in zip(conversation.units, places.ends, strict=True)
                if end is not None and end >= size
            ]
            key, at = root_key(salt), 0
            for end, digest in sorted(ends):
                while at < end:
                    key = token_key(key, tokens[at : at + size])
                    at += size
                self._keep((conversation.model, digest, salt, size), (at, key))
        self.counts["learned"] += 1

    def find(self, conversation: Conversation, salt: str | None) -> dict[str, Found]:
        """What each watched engine has of it, as far as that is known."""
        self.counts["looked"] += 1
        if not self._lock.acquire(timeout=LONGEST_WAIT_S):
            self.counts["busy"] += 1
            return {}
        try:
            each = {url: self._longest(url, conversation, salt) for url in self._feeds}
        finally:
            self._lock.release()
        found = {url: longest for url, longest in each.items() if longest is not None}
        self.counts["found"] += bool(found)
        return found

    def _longest(self, url: str, conversation: Conversation, salt: str | None) -> Found | None:
        size = self.residency.workers[url].block_size
        if size is None:
            return None
        now = self._clock()
        for unit in reversed(conversation.units):
            named = self._names.get((conversation.model, unit.digest, salt, size))
            if named is None:
                continue
            tokens, key = named
            for rank in self.residency.ranks(url):
                block = self.residency.source(url, rank).named(key)
                if block is None:
                    continue
                row = self.residency.lookup(url, rank, [block], now)[0]
                if row.state == "present" and row.tiers:
                    return Found(tokens, TIERS.get(row.tiers[0], 0.3))
        return None

    def _keep(self, key: tuple[str | None, bytes, str | None, int], value: tuple[int, bytes]) -> None:
        self._names[key] = value
        self._names.move_to_end(key)
        while len(self._names) > MOST_NAMES:
            self._names.popitem(last=False)

    def _run(self) -> None:
        while not self._closing.wait(LOOK_S):
            for feed in self._feeds.values():
                try:
                    with self._lock:
                        self._owed()
                        feed.take(self.residency, self._clock())
                except Exception:
                    self.counts["faults"] += 1
            with self._lock, suppress(Exception):
                self._stood = self._states()
