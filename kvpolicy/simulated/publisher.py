"""KV events of the simulated server over ZMQ, in vLLM's encoding: what reads a vLLM's events reads these.

`blocks` tells what happened in each step; a thread of its own numbers the batches, publishes them and answers replays.
Frames are [topic, number, payload]; a payload is the msgpack of [time, [event…], rank], an event a map with its name
under `type`. Unlike vLLM it always binds. Needs the extra `events`.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from kvpolicy.channel.names import number_of
from kvpolicy.faults import InputFault, install
from kvpolicy.pool.events import AllBlocksCleared, BlockRemoved, BlockStored, Event
from kvpolicy.simulated.generation import Call

KEPT = 10_000  # batches that a replay can bring
END = (-1).to_bytes(8, "big", signed=True)


class Publisher:
    """endpoint, replay: where it binds; `tcp://127.0.0.1:0` takes a free port, and then both say which. topic: of
    every frame. Raises InputFault where the extra is missing or an address cannot be had."""

    def __init__(self, endpoint: str, replay: str | None = None, topic: str = "") -> None:
        try:
            import msgspec
            import zmq
        except ImportError as fault:
            raise InputFault(f"events need {fault.name}: {install('events')}") from None
        self._encode = msgspec.msgpack.Encoder().encode
        self._context = zmq.Context()
        self._topic = topic.encode()
        self._live = self._bind(zmq.PUB, endpoint)
        self._replay = None if replay is None else self._bind(zmq.ROUTER, replay)
        self.endpoint = str(self._live.last_endpoint.decode())
        self.replay = None if self._replay is None else str(self._replay.last_endpoint.decode())
        self._kept: deque[tuple[int, bytes]] = deque(maxlen=KEPT)
        self._told: deque[bytes] = deque()
        self._next = 0
        self._closing = False
        self._stir_out, self._stir_in = socket.socketpair()
        self._stir_in.setblocking(False)
        self._stir_out.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="kvpolicy-publisher", daemon=True)
        self._thread.start()

    def publish(self, events: Sequence[Event], call: Call | None) -> None:
        """What one step did to blocks. call: whose step it was; its tokens stand in what it stored. Never waits."""
        rows = [row for event in events for row in rows_of(event, call)]
        self._told.append(self._encode([time.time(), rows, 0]))
        self._stir()

    def close(self) -> None:
        """Publish what was told, and end."""
        self._closing = True
        self._stir()
        self._thread.join(timeout=5.0)

    def _bind(self, kind: int, endpoint: str) -> Any:
        import zmq

        made = self._context.socket(kind)
        made.set_hwm(100_000)
        made.linger = 200
        try:
            made.bind(endpoint)
        except zmq.ZMQError as fault:
            raise InputFault(f"events: cannot publish on {endpoint}: {fault}") from None
        return made

    def _stir(self) -> None:
        with contextlib.suppress(OSError):
            self._stir_out.send(b".")

    def _run(self) -> None:
        import zmq

        poller = zmq.Poller()
        poller.register(self._stir_in, zmq.POLLIN)
        if self._replay is not None:
            poller.register(self._replay, zmq.POLLIN)
        while not self._closing or self._told:
            ready = dict(poller.poll(None if not self._closing else 0))
            with contextlib.suppress(BlockingIOError):
                self._stir_in.recv(4096)
            while self._told:
                number, payload = self._next, self._told.popleft()
                self._next += 1
                self._kept.append((number, payload))
                self._live.send_multipart([self._topic, number.to_bytes(8, "big"), payload])
            if self._replay is not None and self._replay in ready:
                self._again(self._replay.recv_multipart())
        for made in (self._live, self._replay):
            if made is not None:
                made.close()
        self._context.term()
        self._stir_in.close()
        self._stir_out.close()

    def _again(self, frames: list[bytes]) -> None:
        """A replay: every batch that is kept, from a number on, and an end."""
        if len(frames) < 3 or len(frames[-1]) != 8:
            return
        peer, start = frames[0], int.from_bytes(frames[-1], "big")
        assert self._replay is not None
        for number, payload in self._kept:
            if number >= start:
                self._replay.send_multipart([peer, b"", number.to_bytes(8, "big"), payload])
        self._replay.send_multipart([peer, b"", END, b""])


def rows_of(event: Event, call: Call | None) -> list[dict[str, Any]]:
    """An event as vLLM tells it. Blocks whose tokens are not at hand (those that sink to a lower tier) have none."""
    if isinstance(event, AllBlocksCleared):
        return [{"type": "AllBlocksCleared"}]
    if isinstance(event, BlockRemoved):
        names = [number_of(block) for block in event.hashes]
        return [{"type": "BlockRemoved", "block_hashes": names, "medium": event.medium}]
    assert isinstance(event, BlockStored)
    tokens, first = _tokens(event, call)
    row: dict[str, Any] = {
        "type": "BlockStored",
        "block_hashes": [number_of(block) for block in event.hashes],
        "parent_block_hash": None if event.parent is None else number_of(event.parent),
        "token_ids": tokens,
        "block_size": event.block_size,
        "medium": event.medium,
    }
    salt = None if call is None else call.extra.get("salt")
    if tokens and first == 0 and salt:
        row["extra_keys"] = [[salt], *[None] * (len(event.hashes) - 1)]
    return [row]


def _tokens(event: BlockStored, call: Call | None) -> tuple[list[int], int]:
    """Token ids of the blocks, where they are the call's, and the place of the first among its blocks."""
    if call is None:
        return [], 0
    hashes, size = list(event.hashes), event.block_size
    try:
        first = call.hashes.index(hashes[0])  # type: ignore[arg-type]
    except ValueError:
        return [], 0
    end = first + len(hashes)
    if call.hashes[first:end] != hashes:
        return [], 0
    known = call.prompt[first * size : end * size]
    missing = end * size - len(call.prompt)
    rest = call.answer.tokens[max(0, first * size - len(call.prompt)) : missing] if missing > 0 else ()
    return [*known, *rest], first
