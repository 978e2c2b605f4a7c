"""Serving an ASGI application: a socket of its own, one JSON line when it is ready, a clean end at SIGTERM.

What `kvp engine` and `kvp serve` have in common. Needs the extra `serve` (uvicorn).
"""

from __future__ import annotations

import os
import socket
import sys
from typing import Any

import orjson
import uvicorn

from kvpolicy.faults import InputFault

BACKLOG = 2048


class _Server(uvicorn.Server):
    """One that says on stdout where it listens, once it does."""

    def __init__(self, config: uvicorn.Config, url: str) -> None:
        super().__init__(config)
        self._url = url

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        if self.started:
            print(orjson.dumps({"url": self._url, "pid": os.getpid()}).decode(), flush=True)


def serve(app: Any, host: str, port: int, *, tls: dict[str, Any] | None = None, **settings: Any) -> int:
    """Serve `app` until SIGTERM or SIGINT; returns an exit status. tls: `ssl_certfile`, `ssl_keyfile`. Raises
    InputFault where the address cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except (OSError, OverflowError) as fault:
        raise InputFault(f"cannot listen on {host}:{port}: {fault}") from None
    bound = listener.getsockname()[1]
    name = f"[{host}]" if ":" in host else host
    url = f"{'https' if tls else 'http'}://{name}:{bound}"
    config = uvicorn.Config(
        app, log_config=None, log_level="warning", access_log=False, lifespan="on", timeout_keep_alive=75,
        **(tls or {}), **settings,
    )  # fmt: skip
    server = _Server(config, url)
    server.run(sockets=[listener])
    if not server.started:
        print("kvp: the server did not start", file=sys.stderr)
        return 2
    return 0
