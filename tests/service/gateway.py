"""A gateway on a socket, in this process: the real server and proxy, stages as the test gives them."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import uvicorn

from kvpolicy.listening import Bounds, _Protocol
from kvpolicy.service.app import Gateway, make_gateway, mount
from kvpolicy.service.config import checked_config
from kvpolicy.service.exchange import Stage


@contextmanager
def served(app: Any, bounds: Bounds) -> Iterator[str]:
    """The address of an application on a thread of its own."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        app,
        log_config=None,
        lifespan="on",
        http=type("Bounded", (_Protocol,), {"bounds": bounds}),
        ws="none",
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])), daemon=True)
    thread.start()
    ends = time.monotonic() + 20
    while not server.started and time.monotonic() < ends:
        time.sleep(0.01)
    assert server.started
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(20)


@contextmanager
def gateway(
    *urls: str, stages: Sequence[Stage] = (), mint: Any = None, **settings: Any
) -> Iterator[tuple[str, Gateway]]:
    """Its address, and what is behind it. settings: sections of the configuration."""
    document = {"upstream": [{"url": url} for url in urls], **settings}
    config = checked_config(document, "test")
    app, made = make_gateway(config, stages, mint=mint)
    mount(app, made)
    with served(app, Bounds(config.limits.header_bytes, config.limits.header_s)) as at:
        yield at, made
