"""The control channel's thread: lets peers in, reads their lines, queues what is well formed, writes the answers.

Fed by a listening socket (`channel_socket`); hands messages to `channel` through a `Handover`, and takes answers from
there. A Unix socket is authenticated by its mode and the peer's user; a port on loopback by a token in the first line:
`{"do": "hello", "token": "…"}`.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from collections import Counter, deque
from collections.abc import Callable
from hmac import compare_digest
from pathlib import Path
from typing import Any

from kvpolicy.channel.sockets import same_user
from kvpolicy.channel.wire import OF_THE_CHANNEL, Address, ChannelFault, Lines, encode, read_message

MOST_PEERS = 16
MOST_UNSENT = 1 << 20  # bytes of answers that a peer has not read: beyond that it is let go
DEFERRED_AFTER_S = 0.25
_NOT_GREETED = {"status": "rejected", "reason": 'not authenticated: {"do": "hello", "token": …} comes first'}


class Handover:
    """What the thread and the scheduler share. waiting: messages for the scheduler. status: answers a ping."""

    def __init__(self, capacity: int, status: Callable[[], dict[str, Any]] | None) -> None:
        self.capacity = capacity
        self.status = status
        self.waiting: deque[dict[str, Any]] = deque()
        self.counts: Counter[str] = Counter()
        self.wake: Callable[[], None] | None = None
        self.fault: str | None = None


class _Peer:
    __slots__ = ("lines", "number", "out", "socket", "trusted")

    def __init__(self, number: int, connection: socket.socket, trusted: bool) -> None:
        self.number = number
        self.socket = connection
        self.trusted = trusted
        self.lines = Lines()
        self.out = bytearray()


class Listener:
    """All but `answer` and `stop` runs in its thread."""

    def __init__(self, listener: socket.socket, address: Address, token: str | None, shared: Handover) -> None:
        self._listener = listener
        self._address = address
        self._token = token
        self._shared = shared
        self._answers: deque[tuple[int, dict[str, Any]]] = deque(maxlen=2 * shared.capacity)
        self._untold: deque[tuple[float, dict[str, Any]]] = deque()  # queued, and not yet told `deferred`
        self._peers: dict[int, _Peer] = {}
        self._made = 0
        self._news = False  # messages came in this turn
        self._stopping = False
        self._selector = selectors.DefaultSelector()
        self._wake_out, self._wake_in = socket.socketpair()
        self._wake_out.setblocking(False)
        self._wake_in.setblocking(False)

    def answer(self, message: dict[str, Any], row: dict[str, Any]) -> None:
        """Send `row` to whoever sent `message`."""
        self._answers.append((message.get("_peer", 0), _with_id(message, row)))
        self._stir()

    def stop(self) -> None:
        """End the thread soon."""
        self._stopping = True
        self._stir()

    def run(self) -> None:
        """The thread. Whatever happens in it, the engine serves on."""
        try:
            self._selector.register(self._listener, selectors.EVENT_READ)
            self._selector.register(self._wake_in, selectors.EVENT_READ)
            while not self._stopping:
                self._turn()
        except Exception as fault:
            self._shared.fault = f"the channel stopped: {type(fault).__name__}: {fault}"
        finally:
            self._shut()

    def _turn(self) -> None:
        self._news = False
        for key, events in self._selector.select(DEFERRED_AFTER_S if self._untold else None):
            if key.fileobj is self._listener:
                self._accept()
            elif key.fileobj is self._wake_in:
                with contextlib.suppress(BlockingIOError):
                    while self._wake_in.recv(4096):
                        pass
            elif events & selectors.EVENT_READ:
                self._read(key.data)
        # Whether others still wait says nothing: the engine may have looked for the last time just before these came.
        if self._news and self._shared.wake is not None:
            with contextlib.suppress(Exception):
                self._shared.wake()
        while self._answers:
            number, row = self._answers.popleft()
            self._say(self._peers.get(number), row)
        self._tell_deferred()
        for peer in list(self._peers.values()):
            self._write(peer)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        connection.setblocking(False)
        unix = self._address.path is not None
        if len(self._peers) >= MOST_PEERS or (unix and not same_user(connection)):
            self._shared.counts["refused"] += 1
            connection.close()
            return
        self._made += 1
        peer = self._peers[self._made] = _Peer(self._made, connection, trusted=unix)
        self._selector.register(connection, selectors.EVENT_READ, peer)

    def _read(self, peer: _Peer) -> None:
        try:
            data = peer.socket.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._let_go(peer)
            return
        for line in peer.lines.feed(data):
            if peer.number in self._peers:
                self._take(peer, line)

    def _take(self, peer: _Peer, line: bytes | None) -> None:
        counts = self._shared.counts
        counts["received"] += 1
        try:
            if line is None:
                raise ChannelFault("the line is too long")
            message = read_message(line)
        except ChannelFault as fault:
            counts["malformed"] += 1
            if peer.trusted:
                self._say(peer, {"status": "rejected", "reason": str(fault)})
            else:
                self._refuse(peer)
            return
        if not peer.trusted and not self._greets(message):
            self._refuse(peer)
            return
        peer.trusted = True
        if message["do"] in OF_THE_CHANNEL:
            self._say(peer, _with_id(message, self._told() if message["do"] == "ping" else {"status": "accepted"}))
        elif len(self._shared.waiting) >= self._shared.capacity:
            counts["full"] += 1
            reason = f"{self._shared.capacity} messages wait for the engine's next step"
            self._say(peer, _with_id(message, {"status": "rejected", "reason": reason}))
        else:
            message["_peer"] = peer.number
            self._untold.append((time.monotonic(), message))
            self._shared.waiting.append(message)
            self._news = True

    def _greets(self, message: dict[str, Any]) -> bool:
        token = message.get("token")
        if message["do"] != "hello" or not isinstance(token, str) or not self._token:
            return False
        return compare_digest(token.encode(errors="surrogatepass"), self._token.encode(errors="surrogatepass"))

    def _refuse(self, peer: _Peer) -> None:
        self._shared.counts["refused"] += 1
        with contextlib.suppress(OSError):
            peer.socket.send(encode(_NOT_GREETED))
        self._let_go(peer)

    def _let_go(self, peer: _Peer) -> None:
        if self._peers.pop(peer.number, None) is not None:
            self._selector.unregister(peer.socket)
            peer.socket.close()

    def _told(self) -> dict[str, Any]:
        shared = self._shared
        row: dict[str, Any] = {"status": "accepted", "channel": dict(shared.counts), "waiting": len(shared.waiting)}
        if shared.status is not None:
            try:
                row["engine"] = shared.status()
            except Exception as fault:
                row["engine"] = {"fault": f"{type(fault).__name__}: {fault}"}
        return row

    def _tell_deferred(self) -> None:
        """Say so to what the engine has not taken up for a while: it has no step to run."""
        now = time.monotonic()
        if not self._untold or now - self._untold[0][0] < DEFERRED_AFTER_S:
            return
        waiting = {id(message) for message in list(self._shared.waiting)}
        while self._untold and now - self._untold[0][0] >= DEFERRED_AFTER_S:
            message = self._untold.popleft()[1]
            if id(message) in waiting:
                reason = "the engine has no step to run; applied before it next allocates"
                row = {"status": "deferred", "reason": reason}
                self._say(self._peers.get(message["_peer"]), _with_id(message, row))

    def _say(self, peer: _Peer | None, row: dict[str, Any]) -> None:
        if peer is None:
            self._shared.counts["lost"] += 1
            return
        try:
            peer.out += encode(row)
        except (TypeError, ValueError, RecursionError):
            peer.out += encode({"id": row.get("id"), "status": "unknown", "reason": "the answer is no JSON"})

    def _write(self, peer: _Peer) -> None:
        if peer.out:
            try:
                del peer.out[: peer.socket.send(peer.out)]
            except BlockingIOError:
                pass
            except OSError:
                self._let_go(peer)
                return
        if len(peer.out) > MOST_UNSENT:
            self._let_go(peer)
            return
        self._selector.modify(peer.socket, selectors.EVENT_READ | (selectors.EVENT_WRITE if peer.out else 0), peer)

    def _stir(self) -> None:
        with contextlib.suppress(OSError):
            self._wake_out.send(b".")

    def _shut(self) -> None:
        for peer in list(self._peers.values()):
            self._let_go(peer)
        self._selector.close()
        for opened in (self._listener, self._wake_in, self._wake_out):
            opened.close()
        self._shared.waiting.clear()
        if self._address.path is not None:
            Path(self._address.path).unlink(missing_ok=True)


def _with_id(message: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    return {"id": message["id"], **row} if "id" in message else row
