"""Law 12. A worker can be stale: what its events do not prove is not said to be there.

The worker is the embedded engine; its own events are delivered with gaps, twice, out of order, late, and across
restarts. While a rank is live, no block is present that the pool does not have.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kvpolicy.pool import Pool
from kvpolicy.residency import LIVE, Residency
from kvpolicy.residency.events import KvEvent, event_of_pool
from kvpolicy.residency.source import ABSENT, PRESENT, Source

Frame = tuple[str | None, int, KvEvent]


class Worker:
    """An embedded engine that numbers its events from 0 in each life."""

    def __init__(self, *, tells_its_life: bool) -> None:
        self.tells_its_life = tells_its_life
        self.life = 0
        self.frames: list[Frame] = []  # all it has sent, in order
        self.sent: list[tuple[int, int, KvEvent]] = []  # the same with its true life
        self.start()

    def start(self) -> None:
        self.life += 1
        self.sequence = 0
        self.pool = Pool(5, cpu_blocks=3, block_size=1, events=True)
        self.prompts: set[tuple[str, ...]] = set()

    def ask(self, words: str, now: float) -> None:
        """A request that ends at once."""
        prompt = tuple(words[: i + 1] for i in range(len(words)))
        self.prompts.add(prompt)
        self.pool.release(self.pool.acquire(prompt, now), now)
        self.tell()

    def clear(self, now: float) -> None:
        self.pool.clear(now)
        self.tell()

    def tell(self) -> None:
        assert self.pool.events is not None
        for event in self.pool.events:
            life = str(self.life) if self.tells_its_life else None
            self.frames.append((life, self.sequence, event_of_pool(event)))
            self.sent.append((self.life, self.sequence, event_of_pool(event)))
            self.sequence += 1
        self.pool.events.clear()

    def has(self, block: str) -> bool:
        prompt = [block[: i + 1] for i in range(len(block))]
        return self.pool.block(prompt, len(block) - 1) is not None


words = st.text("ab", min_size=1, max_size=5)
doing = st.one_of(
    st.tuples(st.just("ask"), words),
    st.tuples(st.just("clear"), st.just("")),
    st.tuples(st.just("restart"), st.just("")),
)
# How a frame travels: at once, never, twice, or held back behind so many others.
travel = st.sampled_from(["now", "now", "now", "lost", "twice", "late", "later"])


def deliver(index: Residency, worker: Worker, fates: list[str], history: list[tuple[str, str]]) -> None:
    """Let the worker live, and its frames travel; check after every frame that arrives in time."""
    held: list[tuple[int, Frame]] = []
    fate = iter(fates * 40)
    now = 0.0

    def arrive(frame: Frame) -> None:
        index.take("w", 0, frame[1], frame[2], now, frame[0])

    for what, text in history:
        now += 1.0
        sent = len(worker.frames)
        if what == "ask":
            worker.ask(text, now)
        elif what == "clear":
            worker.clear(now)
        else:
            worker.start()
        for frame in worker.frames[sent:]:
            how = next(fate)
            if how in ("now", "twice"):
                arrive(frame)
            if how in ("twice", "late", "later"):
                held.append(({"twice": 3, "late": 1, "later": 7}[how], frame))
            held = [(left - 1, f) for left, f in held]
            for _, due in [h for h in held if h[0] <= 0]:
                arrive(due)
            held = [h for h in held if h[0] > 0]
        check(index, worker, now)


def check(index: Residency, worker: Worker, now: float) -> None:
    """INVARIANT of the law: live means what the engine had when it sent the newest event that has come."""
    source = index.source("w", 0)
    if index.state("w", 0, now) != LIVE:
        return
    life = int(source.incarnation or worker.life)
    had = what_it_had(worker, life, source.last)
    assert set(source.present()) == had, (had, worker.frames)
    every = sorted({"".join(p) for n in range(1, 6) for p in _all("ab", n)})
    for block, row in zip(every, index.lookup("w", 0, every, now), strict=True):
        assert row.state == (PRESENT if block in had else ABSENT)
    if life == worker.life and source.last == worker.sequence - 1:
        assert had == {block for block in every if worker.has(block)}


def what_it_had(worker: Worker, life: int, last: int) -> set[str]:
    """The blocks that were in some tier after event `last` of that life, by its events in their true order."""
    places: set[tuple[str, str | None]] = set()
    for number, sequence, event in worker.sent:
        if number != life or sequence > last:
            continue
        for block in event.hashes:
            assert isinstance(block, str)
            (places.add if event.kind == "stored" else places.discard)((block, event.medium))
        if event.kind == "cleared":
            places.clear()
    return {block for block, _ in places}


def _all(letters: str, n: int) -> list[tuple[str, ...]]:
    return [()] if n == 0 else [(c, *rest) for c in letters for rest in _all(letters, n - 1)]


@given(st.lists(doing, min_size=1, max_size=12), st.lists(travel, min_size=1, max_size=30))
@settings(max_examples=200)
def test_never_present_what_the_pool_does_not_have(history: list[tuple[str, str]], fates: list[str]) -> None:
    deliver(Residency(), Worker(tells_its_life=True), fates, history)


@given(
    st.lists(doing.filter(lambda d: d[0] != "restart"), min_size=1, max_size=12),
    st.lists(travel, min_size=1, max_size=30),
)
@settings(max_examples=150)
def test_nor_where_the_engine_does_not_tell_its_life(history: list[tuple[str, str]], fates: list[str]) -> None:
    deliver(Residency(), Worker(tells_its_life=False), fates, history)


@given(st.lists(doing, min_size=1, max_size=12), st.lists(travel, min_size=1, max_size=30))
@settings(max_examples=150)
def test_a_replay_from_where_it_says_makes_it_live_and_right(history: list[tuple[str, str]], fates: list[str]) -> None:
    worker, index = Worker(tells_its_life=True), Residency()
    deliver(index, worker, fates, history)
    life = str(worker.life)
    index.worker("w", 99.0, incarnation=life)
    first = index.row("w", 0, 99.0)["replay_from"]
    assert isinstance(first, int) or first is None
    for told, sequence, event in worker.frames:
        if told == life and first is not None and sequence >= first:
            replayed = KvEvent(event.kind, event.hashes, event.parent, event.medium, event.block_size, replayed=True)
            index.take("w", 0, sequence, replayed, 99.0, life)
    source = index.source("w", 0)
    if first is not None and worker.sequence:
        assert source.last == worker.sequence - 1 and index.state("w", 0, 99.0) == LIVE
    check(index, worker, 99.0)


@given(st.lists(doing, min_size=2, max_size=10), st.lists(travel, min_size=1, max_size=30))
@settings(max_examples=100)
def test_a_certain_block_behind_a_gap_is_there(history: list[tuple[str, str]], fates: list[str]) -> None:
    """Stale is no licence: what is said to be present then is there, too, once the last frame has come."""
    worker, index = Worker(tells_its_life=True), Residency()
    deliver(index, worker, [*fates, "now"], history)
    if not worker.frames or worker.frames[-1][0] != str(worker.life):
        return
    last = worker.frames[-1]
    index.take("w", 0, last[1], last[2], 99.0, last[0])
    source = index.source("w", 0)
    if source.seen == worker.sequence - 1:
        for block in source.present():
            assert isinstance(block, str) and worker.has(block)


class Rash(Source):
    """A mutant: a gap does not make it wait."""

    def take(self, sequence: int, event: KvEvent, now: float) -> Any:
        self.base.apply(event)
        self.last = self.seen = max(self.last, sequence)


def test_the_law_notices_an_index_that_does_not_wait() -> None:
    """The mechanism broken on purpose: a late store brings a removed block back, and live is said of it."""
    index, worker = Residency(), Worker(tells_its_life=True)
    index.worker("w", 0.0, incarnation="1")
    index._sources["w"] = {0: Rash(incarnation="1")}
    worker.ask("a", 0.0)
    worker.clear(1.0)
    for _, sequence, event in [*worker.frames, worker.frames[0]]:
        index.take("w", 0, sequence, event, 1.0, "1")
    assert index.lookup("w", 0, ["a"], 1.0)[0].state == PRESENT and not worker.has("a")
