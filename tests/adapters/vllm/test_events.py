"""vLLM's KV events: real frames of a 0.32.0 server, the older encodings made from them, and a publisher that loses,
repeats and restarts.

`frames-0.32.0.jsonl` was recorded from a server with 12 blocks of 32 tokens and the topic `kv`: three prompts of two
full blocks (one sent twice, one with a salt), longer ones that evict, a reset, the first prompt again; then a replay
from batch 2.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

from kvpolicy.adapters.vllm.decode import decode
from kvpolicy.adapters.vllm.events import END, Feed, of_rank
from kvpolicy.faults import InputFault
from kvpolicy.residency import LIVE, STALE, Residency

RECORDED = [json.loads(line) for line in (Path(__file__).parent / "frames-0.32.0.jsonl").read_text().splitlines()]
ORDER = ("block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name", "extra_keys")


def frames(kind: str) -> list[list[bytes]]:
    return [[bytes.fromhex(frame) for frame in row["frames"]] for row in RECORDED if row["socket"] == kind]


LIVE_FRAMES = [(int.from_bytes(number, "big"), payload) for _, number, payload in frames("sub")]


def as_array(payload: bytes, known: int = len(ORDER)) -> bytes:
    """A batch as a version up to 0.23 told it; known: fields of a store that it had."""
    at, events, *rank = msgspec.msgpack.decode(payload)
    rows = []
    for event in events:
        order = ORDER[:known] if event["type"] == "BlockStored" else ("block_hashes", "medium")
        fields = [event.get(name) for name in order] if event["type"] != "AllBlocksCleared" else []
        rows.append([event["type"], *fields])
    return msgspec.msgpack.encode([at, rows, *rank])


def batch(*events: dict[str, Any], at: float = 1.0, rank: int | None = 0) -> bytes:
    return msgspec.msgpack.encode([at, list(events), rank])


def stored(*hashes: int | bytes, **more: Any) -> dict[str, Any]:
    return {"type": "BlockStored", "block_hashes": list(hashes), "parent_block_hash": None, "block_size": 4, **more}


def test_the_recorded_server_says_what_was_done_to_it() -> None:
    events = [decode(payload) for _, payload in LIVE_FRAMES]
    first = events[0].event.parts[0]
    assert (first.kind, len(first.hashes), len(first.tokens), first.block_size, first.medium) == (
        "stored",
        2,
        64,
        32,
        "gpu",
    )
    salted = next(p for e in events for p in e.event.parts if p.salt is not None)
    assert salted.hashes and salted.tokens  # together they name the block
    kinds = [part.kind for event in events for part in event.event.parts]
    assert kinds.count("cleared") == 1 and "removed" in kinds
    assert all(event.rank == 0 and event.unknown == 0 for event in events)


@pytest.mark.parametrize("known", [6, 7, 8])
def test_both_encodings_say_the_same(known: int) -> None:
    for _, payload in LIVE_FRAMES:
        new, old = decode(payload), decode(as_array(payload, known))
        assert (new.at, new.rank) == (old.at, old.rank)
        for one, other in zip(new.event.parts, old.event.parts, strict=True):
            assert (one.kind, one.hashes, one.parent, one.medium) == (
                other.kind,
                other.hashes,
                other.parent,
                other.medium,
            )
            if known == 8 or one.tokens:  # before extra_keys there was no telling that a salt took part
                assert one.tokens == other.tokens


def test_hashes_may_be_bytes_fields_may_be_missing_and_news_is_passed_over() -> None:
    told = decode(batch(stored(b"\x01\xff", 7, medium="CPU", shape="round"), {"type": "BlockMoved"}, rank=None))
    assert told.rank is None and told.unknown == 1
    (part,) = told.event.parts
    assert (part.hashes, part.medium, part.tokens, part.group) == (("01ff", 7), "cpu", (), None)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        msgspec.msgpack.encode({"ts": 1}),
        msgspec.msgpack.encode([1.0]),
        msgspec.msgpack.encode(["late", []]),
        msgspec.msgpack.encode([1.0, [3]]),
        msgspec.msgpack.encode([1.0, [["BlockStored", 5]]]),
        msgspec.msgpack.encode([1.0, [{"type": "BlockRemoved", "block_hashes": [1.5]}]]),
    ],
)
def test_what_is_no_batch_is_a_fault_that_says_so(payload: bytes) -> None:
    with pytest.raises(InputFault, match="KV events"):
        decode(payload)


def test_ranks_have_ports_of_their_own() -> None:
    assert of_rank("tcp://host:5557", 2) == "tcp://host:5559"
    assert of_rank("ipc:///run/events", 0) == "ipc:///run/events"
    with pytest.raises(InputFault, match="no port"):
        of_rank("ipc:///run/events", 1)


class Publisher:
    """vLLM's publisher as its wire shows it: PUB, and a ROUTER that answers from a buffer of limited length."""

    def __init__(self, folder: Path, leading: int = 1) -> None:
        self.context = zmq.Context()
        self.endpoints = (f"ipc://{folder}/e", f"ipc://{folder}/r")
        self.leading = leading
        self.buffer: list[tuple[int, bytes]] = []
        self.asked: list[int] = []
        self._open()

    def _open(self, answers: bool = True) -> None:
        self.pub, self.router = self.context.socket(zmq.PUB), self.context.socket(zmq.ROUTER)
        self.pub.bind(self.endpoints[0])
        self.router.bind(self.endpoints[1])
        self.stopping = not answers
        self.thread = threading.Thread(target=self._answer)
        self.thread.start()

    def tell(self, number: int, payload: bytes, lost: bool = False) -> None:
        self.buffer.append((number, payload))
        if not lost:
            self.pub.send_multipart([b"kv", number.to_bytes(8, "big"), payload])

    def _answer(self) -> None:
        while not self.stopping:
            if self.router.poll(20):
                who, _, start = self.router.recv_multipart()
                self.asked.append(int.from_bytes(start, "big"))
                empty = [b""] * self.leading
                for number, payload in list(self.buffer):
                    if number >= self.asked[-1]:
                        self.router.send_multipart([who, *empty, number.to_bytes(8, "big"), payload])
                self.router.send_multipart([who, *empty, END, b""])

    def close(self) -> None:
        self.stopping = True
        self.thread.join()
        self.pub.close(linger=0)
        self.router.close(linger=0)
        self.context.term()

    def restart(self, answers: bool = True) -> None:
        self.stopping = True
        self.thread.join()
        self.pub.close(linger=0)
        self.router.close(linger=0)
        self.buffer.clear()
        self._open(answers)


class World:
    """A publisher, a feed that is connected to it, and the residency; time is counted by hand."""

    def __init__(self, folder: Path, leading: int, replay: bool = True) -> None:
        self.publisher = Publisher(folder, leading)
        self.residency = Residency()
        self.feed = Feed("w", self.publisher.endpoints[0], self.publisher.endpoints[1] if replay else None, topic="kv")
        self.now = 0.0
        time.sleep(0.2)  # a subscription needs a moment to arrive

    def settle(self, until: Any) -> None:
        ends = time.monotonic() + 15.0
        while not until():
            assert time.monotonic() < ends, (self.row(), dict(self.feed.counts), self.publisher.asked)
            self.now += 0.25
            self.feed.take(self.residency, self.now, 0.02)

    def row(self) -> dict[str, Any]:
        return self.residency.row("w", 0, self.now)

    def present(self) -> set[Any]:
        return set(self.residency.source("w", 0).present())

    def close(self) -> None:
        self.feed.close()
        self.publisher.close()


@pytest.fixture(params=[1, 2], ids=["one empty frame", "an empty topic, too"])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with closing(World(tmp_path_factory.mktemp("z"), request.param)) as made:
        yield made


def played() -> set[Any]:
    """The blocks that are there at the end of the recording, by hand."""
    there: set[Any] = set()
    for _, payload in LIVE_FRAMES:
        for part in decode(payload).event.parts:
            if part.kind == "cleared":
                there.clear()
            there = there | set(part.hashes) if part.kind == "stored" else there - set(part.hashes)
    return there


def test_a_recorded_stream_is_what_the_worker_holds(world: World) -> None:
    for number, payload in LIVE_FRAMES:
        world.publisher.tell(number, payload)
    world.settle(lambda: world.row()["last_sequence"] == LIVE_FRAMES[-1][0])
    assert world.row()["state"] == LIVE
    assert world.present() == played() and played()
    assert world.feed.counts["cleared"] == 1 and world.feed.counts["asked"] <= 1  # once at most, before event 0 came


def test_a_gap_is_filled_by_replay_and_nothing_is_certain_before(world: World) -> None:
    cleared = next(n for n, p in LIVE_FRAMES if decode(p).event.clears_all)
    told = [row for row in LIVE_FRAMES if row[0] < cleared]  # a clearing would make the gap void
    for number, payload in told:
        world.publisher.tell(number, payload, lost=number in (1, 2))
    world.settle(lambda: world.feed.counts["frames"] == len(told) - 2)
    world.settle(lambda: world.row()["state"] == LIVE)
    assert world.publisher.asked[-1] == 0  # from the last number known on: that shows whose life it is
    assert world.row()["last_sequence"] == told[-1][0]
    assert world.feed.counts["restarts"] == 0


def test_without_a_replay_socket_a_gap_stays_and_says_so(tmp_path: Path) -> None:
    with closing(World(tmp_path, 1, replay=False)) as world:
        world.publisher.tell(0, batch(stored(1)))
        world.publisher.tell(2, batch(stored(2), at=3.0))
        world.settle(lambda: world.feed.counts["frames"] == 2)
        row = world.row()
        assert (row["state"], row["replay_from"], row["last_sequence"]) == (STALE, 1, 0)
        assert world.residency.lookup("w", 0, [1], world.now)[0].state == "unknown"


def test_a_restart_ends_the_blocks_of_the_life_before(world: World) -> None:
    for number in range(3):
        world.publisher.tell(number, batch(stored(number), at=1.0 + number))
    world.settle(lambda: world.row()["last_sequence"] == 2)
    world.publisher.restart()
    time.sleep(0.3)
    world.publisher.tell(0, batch(stored(70), at=50.0))
    world.settle(lambda: world.present() == {70} and world.row()["state"] == LIVE)
    assert world.feed.counts["restarts"] == 1


def test_a_restart_behind_a_gap_is_noticed_by_the_times(world: World) -> None:
    """The first frame seen of the new life has a higher number than any of the old one."""
    for number in range(3):
        world.publisher.tell(number, batch(stored(number), at=1.0 + number))
    world.settle(lambda: world.row()["last_sequence"] == 2)
    world.publisher.restart()
    time.sleep(0.3)
    for number in range(6):
        world.publisher.tell(number, batch(stored(70 + number), at=50.0 + number), lost=number < 5)
    world.settle(lambda: world.row()["state"] == LIVE and world.row()["last_sequence"] == 5)
    assert world.present() == {70, 71, 72, 73, 74, 75}
    assert world.feed.counts["restarts"] == 1


def test_a_late_frame_of_the_life_before_brings_nothing_back(world: World) -> None:
    world.publisher.tell(0, batch(stored(1), at=1.0))
    world.publisher.tell(1, batch(stored(2), at=2.0))
    world.settle(lambda: world.row()["last_sequence"] == 1)
    world.publisher.tell(0, batch(stored(9), at=50.0))
    world.settle(lambda: world.feed.counts["restarts"] == 1)
    world.publisher.tell(0, batch(stored(1), at=1.0))
    world.settle(lambda: world.feed.counts["frames"] == 4)
    assert world.present() == {9}


def test_a_frame_that_cannot_be_read_is_counted_and_asked_for_again(world: World) -> None:
    world.publisher.tell(0, batch(stored(1)))
    world.publisher.pub.send_multipart([b"kv", b"short", b""])
    world.publisher.pub.send_multipart([b"kv", (1).to_bytes(8, "big"), b"\xc1"])
    world.publisher.buffer.append((1, batch(stored(2), at=2.0)))
    world.publisher.tell(2, batch(stored(3), at=3.0))
    world.settle(lambda: world.present() == {1, 2, 3})
    assert world.feed.counts["malformed"] == 2


def test_each_rank_is_a_stream_of_its_own(world: World) -> None:
    world.publisher.tell(0, batch(stored(1), rank=0))
    world.settle(lambda: world.row()["last_sequence"] == 0)
    assert world.residency.ranks("w") == [0]
    other = Feed("w", world.publisher.endpoints[0], topic="kv")
    try:
        time.sleep(0.2)
        world.publisher.tell(0, batch(stored(5), at=1.5, rank=3))
        ends = time.monotonic() + 10
        while world.residency.ranks("w") != [0, 3] and time.monotonic() < ends:
            other.take(world.residency, 1.0, 0.05)
    finally:
        other.close()
    assert [r.state for r in world.residency.lookup("w", 3, [5, 1], 1.0)] == ["present", "absent"]
    assert world.present() == {1}


def test_the_newest_frame_may_be_lost_and_is_asked_for_after_a_silence(world: World) -> None:
    world.publisher.tell(0, batch(stored(1)))
    world.settle(lambda: world.row()["state"] == LIVE)
    world.publisher.tell(1, batch(stored(2), at=2.0), lost=True)
    world.settle(lambda: world.present() == {1, 2})
    assert world.feed.counts["frames"] == 1 and world.feed.counts["restarts"] == 0


def test_a_lost_connection_makes_nothing_certain_until_the_engine_was_asked(world: World) -> None:
    world.publisher.tell(0, batch(stored(1)))
    world.settle(lambda: world.row()["state"] == LIVE)
    kept = list(world.publisher.buffer)
    world.publisher.restart(answers=False)
    world.settle(lambda: world.feed.counts["disconnects"] == 1)
    assert world.row()["state"] == STALE and world.present() == set()
    world.publisher.restart()
    world.publisher.buffer += kept  # only the connection was lost: the engine's life goes on
    world.settle(lambda: world.present() == {1} and world.row()["state"] == LIVE)
    assert world.feed.counts["restarts"] == 0


def test_without_a_replay_socket_a_lost_connection_is_another_life(tmp_path: Path) -> None:
    with closing(World(tmp_path, 1, replay=False)) as world:
        world.publisher.tell(0, batch(stored(1)))
        world.settle(lambda: world.row()["state"] == LIVE)
        world.publisher.restart()
        world.settle(lambda: world.feed.counts["disconnects"] == 1)
        assert world.row()["state"] == STALE
        time.sleep(0.3)
        world.publisher.tell(1, batch(stored(2), at=9.0))  # would be the next one, of either life
        world.settle(lambda: world.feed.counts["frames"] == 2)
        assert world.residency.lookup("w", 0, [1], world.now)[0].state == "unknown"
