"""The control channel, service side: send re-rankings and releases to an engine, and never wait for it.

`send` puts a message into a bounded queue; a thread connects at once, so that `connected` says whether an engine
listens, writes, reads answers and connects anew where the engine went away. What does not fit is dropped, the oldest
first, and counted: a later re-ranking says more than an earlier one. `ask` is for a person at a terminal: one message,
one answer, on a connection of its own.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from kvpolicy.channel.wire import LONGEST_LINE, Address, ChannelFault, Lines, encode, read_address, read_message
from kvpolicy.faults import InputFault

CAPACITY = 1024
CONNECT_WITHIN_S = 1.0
RETRY_S = (0.1, 5.0)  # first and longest pause before connecting again
_IN_FLIGHT = 4096


class ChannelClient:
    """One engine's channel. on_answer: called in the client's thread with each answer that the engine sends; a message
    of ours carries the `id` that `send` gave.

    counts: sent answered dropped (the queue was full) unanswered (the connection ended first) connects faults.
    """

    def __init__(
        self,
        address: str,
        *,
        token: str | None = None,
        capacity: int = CAPACITY,
        on_answer: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self._address = _address(address)
        self._token = token
        self._on_answer = on_answer
        self._queue: deque[tuple[int, bytes]] = deque()  # ids and their lines
        self._capacity = capacity
        self._in_flight: deque[object] = deque(maxlen=_IN_FLIGHT)
        self._stir_out, self._stir_in = socket.socketpair()
        self._stir_out.setblocking(False)
        self._stir_in.setblocking(False)
        self._closing = False
        self._ended = threading.Event()
        self._next = 0
        self.connected = False
        self.counts: Counter[str] = Counter()
        self._thread = threading.Thread(target=self._run, name="kvpolicy-channel-client", daemon=True)
        self._thread.start()

    @property
    def backlog(self) -> int:
        """Messages that the engine has not taken up, as far as is known: queued, or sent and not finally answered."""
        return len(self._queue) + len(self._in_flight)

    def send(self, message: dict[str, Any]) -> int:
        """Queue a message; returns its `id`. Never waits. Raises InputFault for one that the engine would reject."""
        self._next += 1
        number = self._next
        try:
            line = encode({**message, "id": number})
            if len(line) > LONGEST_LINE:
                raise ChannelFault(f"it has {len(line)} bytes, a line at most {LONGEST_LINE}")
            read_message(line)
        except (ChannelFault, ValueError) as fault:
            raise InputFault(f"channel message: {fault}") from None
        while len(self._queue) >= self._capacity:
            with contextlib.suppress(IndexError):
                self._queue.popleft()
                self.counts["dropped"] += 1
        self._queue.append((number, line))
        self._stir()
        return number

    def close(self) -> None:
        """Stop; what is queued is dropped."""
        self._closing = True
        self._ended.set()
        self._stir()
        self._thread.join(timeout=2 * CONNECT_WITHIN_S)

    def _stir(self) -> None:
        with contextlib.suppress(OSError):
            self._stir_out.send(b".")

    def _run(self) -> None:
        pause = RETRY_S[0]
        while not self._closing:
            try:
                with connect(self._address, self._token) as connection:
                    self.connected = True
                    self.counts["connects"] += 1
                    pause = RETRY_S[0]
                    self._talk(connection)
            except (OSError, ChannelFault):
                self.counts["faults"] += 1
            self.connected = False
            self.counts["unanswered"] += len(self._in_flight)
            self._in_flight.clear()
            if not self._closing:
                self._ended.wait(pause)
                pause = min(2 * pause, RETRY_S[1])
        self.counts["dropped"] += len(self._queue)
        self._queue.clear()
        self._stir_in.close()
        self._stir_out.close()

    def _talk(self, connection: socket.socket) -> None:
        """Until the connection ends."""
        lines, out = Lines(), bytearray()
        connection.setblocking(False)
        with selectors.DefaultSelector() as selector:
            selector.register(connection, selectors.EVENT_READ)
            selector.register(self._stir_in, selectors.EVENT_READ)
            while not self._closing:
                while self._queue and len(out) < 65536:
                    with contextlib.suppress(IndexError):
                        number, text = self._queue.popleft()
                        out += text
                        self._in_flight.append(number)
                        self.counts["sent"] += 1
                if out:
                    with contextlib.suppress(BlockingIOError):
                        del out[: connection.send(out)]
                selector.modify(connection, selectors.EVENT_READ | (selectors.EVENT_WRITE if out else 0))
                for key, events in selector.select():
                    if key.fileobj is self._stir_in:
                        with contextlib.suppress(BlockingIOError):
                            self._stir_in.recv(4096)
                    elif events & selectors.EVENT_READ:
                        data = connection.recv(65536)
                        if not data:
                            return
                        for line in lines.feed(data):
                            self._hear(line)

    def _hear(self, line: bytes | None) -> None:
        row = read_answer(line)
        if row is None:
            self.counts["faults"] += 1
            return
        if row.get("status") != "deferred":  # another answer follows that one
            self.counts["answered"] += 1
            with contextlib.suppress(ValueError):
                self._in_flight.remove(row.get("id"))
        if self._on_answer is not None:
            try:
                self._on_answer(row)
            except Exception:  # the listener's own fault: the next answer has its chance all the same
                self.counts["faults"] += 1


def ask(address: str, message: dict[str, Any], *, token: str | None = None, within_s: float = 5.0) -> dict[str, Any]:
    """Send one message and wait for its answer; a `deferred` one is returned when nothing follows in time. Raises
    InputFault where there is no channel, or it does not answer."""
    where = _address(address)
    ends = time.monotonic() + within_s
    latest: dict[str, Any] | None = None
    try:
        with connect(where, token) as connection:
            connection.sendall(encode({**message, "id": "ask"}))
            lines = Lines()
            while (left := ends - time.monotonic()) > 0:
                connection.settimeout(left)
                data = connection.recv(65536)
                if not data:
                    break
                for line in lines.feed(data):
                    row = read_answer(line)
                    if row is not None and (row.get("id") == "ask" or row.get("status") == "rejected"):
                        latest = row
                        if row.get("status") != "deferred":
                            return row
    except TimeoutError:
        pass
    except (OSError, ChannelFault) as fault:
        raise InputFault(f"control channel {where}: {fault}") from None
    if latest is None:
        raise InputFault(f"control channel {where}: no answer within {within_s:g} s")
    return latest


def connect(address: Address, token: str | None) -> socket.socket:
    """A connection on which messages may be sent. Raises OSError or ChannelFault."""
    connection = socket.socket(address.family, socket.SOCK_STREAM)
    try:
        connection.settimeout(CONNECT_WITHIN_S)
        connection.connect(address.target)
        if address.path is None:
            connection.sendall(encode({"do": "hello", "token": token or ""}))
            row = read_answer(next((line for line in Lines().feed(connection.recv(4096))), None))
            if row is None or row.get("status") != "accepted":
                raise ChannelFault("the token was refused")
    except BaseException:
        connection.close()
        raise
    return connection


def read_answer(line: bytes | None) -> dict[str, Any] | None:
    """The answer in a line; None where there is none."""
    import json

    try:
        row = json.loads(line or b"")
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _address(text: str) -> Address:
    try:
        return read_address(text)
    except ChannelFault as fault:
        raise InputFault(str(fault)) from None
