"""Serving an ASGI application: a socket of its own, one JSON line when it is ready, a clean end at SIGTERM.

What `kvp engine` and `kvp serve` have in common. Connections whose request's head is too long, or does not come, are
ended here: no application sees them. Needs the extra `serve` (uvicorn, httptools).
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import ssl
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any

import orjson
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from kvpolicy.faults import InputFault

BACKLOG = 2048
GRACE_S = 2  # for connections, once the application has said that nothing is left to wait for


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of a connection. header_bytes: of a request's head; header_s: seconds for it to come; clients: at once."""

    header_bytes: int = 64 << 10
    header_s: float = 30.0
    clients: int | None = None


@dataclass(frozen=True, slots=True)
class Tls:
    """Files in PEM. client_ca: only clients with a certificate of it are let in."""

    cert: str
    key: str | None = None
    client_ca: str | None = None


class _TooLong(Exception):
    """A head beyond its bound."""


class _Protocol(HttpToolsProtocol):
    """A connection with bounds: uvicorn's own has none for the head of a request."""

    bounds = Bounds()
    _late: asyncio.TimerHandle | None = None
    _head: int | None = 0  # bytes of the head that is coming, None between its end and the next request's first byte
    _between = 0  # bytes behind a head that were no body: chunks' own lines, and trailers
    _long = False

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._between += len(data)
        super().data_received(data)
        if self._head is None and self._between > 2 * self.bounds.header_bytes:  # one trailer may go on without an end
            self._end_trailer()
        if self._head is not None and self.parser is not None:  # one header line alone may go on without an end
            self._head += len(data)
            if self._head > 2 * self.bounds.header_bytes and not self.transport.is_closing():
                self._long = True
                self.send_400_response("")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head = 0
        if self._late is None:
            self._arm()

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._counted(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._head is None:
            return  # a trailer: nobody reads it, none is kept
        super().on_header(name, value)
        self._counted(len(name) + len(value))

    def on_body(self, body: bytes) -> None:
        self._between = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._between = 0
        super().on_message_complete()

    def on_headers_complete(self) -> None:
        self._head, self._between = None, 0
        self._disarm()
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """A refusal in JSON, as the application's own are."""
        if self.transport.is_closing():
            return
        status, text = (431, "the headers are too long") if self._long else (400, "this is no HTTP request")
        self._refuse(status, text)

    def _end_trailer(self) -> None:
        if self.transport.is_closing():
            return
        if self.cycle is not None and self.cycle.response_started:
            self.transport.close()
        else:
            self._refuse(431, "the trailers are too long")

    def _counted(self, size: int) -> None:
        self._long = self._long or size > self.bounds.header_bytes
        if self._long:
            raise _TooLong

    def _arm(self) -> None:
        self._late = self.loop.call_later(self.bounds.header_s, self._is_late)

    def _disarm(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _is_late(self) -> None:
        self._late = None
        if self._head and not self.transport.is_closing():
            self._refuse(408, "the head of the request did not come in time")
        elif self._head is not None:
            self.transport.close()

    def _refuse(self, status: int, text: str) -> None:
        error = {"type": "invalid_request_error", "message": text, "param": None, "code": None}
        data = orjson.dumps({"error": error})
        head = (
            f"HTTP/1.1 {status} Refused\r\ncontent-type: application/json\r\n"
            f"content-length: {len(data)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + data)
        self.transport.close()


class _Asked(logging.Filter):
    """Leaves out what uvicorn says of single requests: a client's doing, which metrics count, and no log needs; who
    asks often could fill a disk by it. What goes wrong here is said."""

    SAID = (
        "Invalid HTTP request received.",
        "Unsupported upgrade request.",
        "No supported WebSocket library detected.",
        "ASGI callable returned without completing response.",
    )

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it is said."""
        return not str(record.msg).startswith(self.SAID)


class _Server(uvicorn.Server):
    """One that says on stdout where it listens, once it does, and that waits at a stop for what the application
    says."""

    def __init__(
        self, config: uvicorn.Config, told: Mapping[str, object], stopping: Callable[[], Awaitable[None]] | None
    ) -> None:
        super().__init__(config)
        self._told, self._stopping = told, stopping
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wait: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets=sockets)
        if self.started:
            print(orjson.dumps({**self._told, "pid": os.getpid()}).decode(), flush=True)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal lets running requests end; a second one does not."""
        if self._stopping is None or self._loop is None or self._wait is not None or sig == signal.SIGINT:
            super().handle_exit(sig, frame)
            return
        self._captured_signals.append(sig)
        self._loop.call_soon_threadsafe(self._begin_stop)

    def _begin_stop(self) -> None:
        assert self._loop is not None
        if self._wait is None:
            self._wait = self._loop.create_task(self._stop())

    async def _stop(self) -> None:
        try:
            if self._stopping is not None:
                await self._stopping()
        finally:
            self.should_exit = True


_QUIET = _Asked()


def serve(
    app: Any,
    host: str,
    port: int,
    *,
    tls: Tls | None = None,
    bounds: Bounds | None = None,
    stopping: Callable[[], Awaitable[None]] | None = None,
    also: Mapping[str, object] | None = None,
    **settings: Any,
) -> int:
    """Serve `app` until SIGTERM or SIGINT; returns an exit status. stopping: awaited at SIGTERM while the socket still
    listens. also: what the line of its address says besides. Raises InputFault where the address cannot be had or a
    certificate cannot be read."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except (OSError, OverflowError) as fault:
        why = getattr(fault, "strerror", None) or str(fault)
        why = why[:1].lower() + why[1:]
        raise InputFault(f"cannot listen on {host}:{port}: {why}; give another --host or --port") from None
    bound = listener.getsockname()[1]
    name = f"[{host}]" if ":" in host else host
    url = f"{'https' if tls else 'http'}://{name}:{bound}"
    limits = bounds or Bounds()
    config = uvicorn.Config(
        app, log_config=None, log_level="warning", access_log=False, lifespan="on", timeout_keep_alive=75,
        proxy_headers=False,  # INVARIANT: a client is who is connected; no header of its own makes it another
        http=type("Bounded", (_Protocol,), {"bounds": limits}), ws="none", server_header=False,
        limit_concurrency=limits.clients, timeout_graceful_shutdown=None if stopping is None else GRACE_S,
        **settings,
    )  # fmt: skip
    if tls is not None:
        config.load()
        config.ssl = _context(tls)
    logging.getLogger("uvicorn.error").addFilter(_QUIET)
    server = _Server(config, {"url": url, **(also or {})}, stopping)
    server.run(sockets=[listener])
    if not server.started:
        print("kvp: the server did not start", file=sys.stderr)
        return 2
    return 0


def _context(tls: Tls) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(tls.cert, tls.key)
        if tls.client_ca is not None:
            context.load_verify_locations(tls.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ssl.SSLError) as fault:
        raise InputFault(f"certificates cannot be read from {tls.cert}, {tls.key}, {tls.client_ca}: {fault}") from None
    return context
