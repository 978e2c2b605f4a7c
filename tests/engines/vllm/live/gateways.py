"""The gateway in front of a live vLLM: `kvp serve` as a process, and a relay between the two that keeps what passed.

The gateway runs in the interpreter that runs `make test-engines` (KVPOLICY_PYTHON), as it would: beside the engine, not
in its environment.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.engines.vllm.live.serving import BLOCK, Server

PYTHON = os.environ.get("KVPOLICY_PYTHON", sys.executable)
CHECKOUT = Path(__file__).resolve().parents[4]


class Gateway(Server):
    """Asked like the server behind it, at another address."""

    behind: Server
    address: str

    @property
    def url(self) -> str:
        """Without a path."""
        return self.address

    def owners(self, session: str) -> list[dict[str, Any]]:
        """What it knows of a session."""
        return [row for row in json.loads(self.get("/v1/owners"))["owners"] if row["session"] == session]

    def phase(self, session: str, wanted: str) -> str:
        """The phase of a session, waited for: an answer's end is read as it passes."""

        def now() -> str:
            rows = self.owners(session)
            return rows[-1]["phase"] if rows else "unknown"

        return until(now, lambda seen: seen == wanted)

    def counter(self, name: str, **labels: str) -> float:
        """The sum of a counter's rows with these labels."""
        total = 0.0
        for line in self.get("/metrics").splitlines():
            head, _, value = line.rpartition(" ")
            if head.partition("{")[0] == name and all(f'{key}="{said}"' in head for key, said in labels.items()):
                total += float(value)
        return total

    def said(self, session: str, messages: list[dict[str, Any]], most: int = 8, **more: Any) -> dict[str, Any]:
        """A greedy chat completion of a session, whole."""
        body = {"model": "tiny", "messages": messages, "max_tokens": most, "temperature": 0, "return_token_ids": True}
        data = json.dumps({**body, **more}).encode()
        headers = {"Content-Type": "application/json", "x-session-id": session}
        request = urllib.request.Request(self.url + "/v1/chat/completions", data, headers)
        with urllib.request.urlopen(request, timeout=120) as answer:
            row = json.loads(answer.read())
            row["decision"] = answer.headers.get("x-kvp-decision", "")
        return row


@contextmanager
def gateway(
    server: Server, folder: Path, *, mode: str = "enforce", policy: str = "coding_agent", url: str = ""
) -> Iterator[Gateway]:
    """`kvp serve` in front of a server. url: where it reaches it, if not at its own address."""
    folder.mkdir(parents=True, exist_ok=True)
    events = re.search(r"KV events (\S+), replay (\S+)", server.log)
    assert events is not None
    settings = folder / "kvp.toml"
    settings.write_text(
        f'[[upstream]]\nurl = "{url or server.url}"\nchannel = "{server.channel}"\nevents = "{events[1]}"\n'
        f'replay = "{events[2]}"\n[policy]\nname = "{policy}"\nmode = "{mode}"\n[limits]\ndecide_within_s = 2.0\n',
        encoding="utf-8",
    )
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [PYTHON, "-m", "kvpolicy", "serve", "--port", "0", "--config", str(settings)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=CHECKOUT,
        )
    try:
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], 90)
        line = process.stdout.readline() if ready else b""
        assert line, (folder / "log").read_text(encoding="utf-8")
        made = Gateway(server.model, folder)
        made.address, made.behind = json.loads(line)["url"], server
        yield made
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            raise


class Relay:
    """Passes bytes between a client and a server, and keeps those of the server's answers, a connection at a time."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.answers: list[bytearray] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                kept = bytearray()
                self.answers.append(kept)
                server = socket.create_connection(("127.0.0.1", self._port))
                threading.Thread(target=_pass, args=(client, server, None), daemon=True).start()
                threading.Thread(target=_pass, args=(server, client, kept), daemon=True).start()


def _pass(source: socket.socket, target: socket.socket, kept: bytearray | None) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            if kept is not None:
                kept += data
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def bodies(raw: bytes) -> list[bytes]:
    """The bodies of the answers on one connection, whatever pieces they came in."""
    found, rest = [], bytes(raw)
    while rest:
        head, _, rest = rest.partition(b"\r\n\r\n")
        lengths = re.search(rb"(?im)^content-length: *(\d+)", head)
        if lengths is not None:
            size = int(lengths[1])
            found.append(rest[:size])
            rest = rest[size:]
            continue
        body = b""
        while True:
            size_line, _, rest = rest.partition(b"\r\n")
            size = int(size_line.partition(b";")[0], 16)
            body, rest = body + rest[:size], rest[size + 2 :]
            if size == 0:
                break
        found.append(body)
    return found


def until(look: Callable[[], Any], fine: Callable[[Any], bool], within: float = 30.0) -> Any:
    """What is seen once it is fine, or when the time is over."""
    ends = time.monotonic() + within
    while not fine(seen := look()) and time.monotonic() < ends:
        time.sleep(0.1)
    return seen


def full(tokens: int) -> int:
    """Tokens in full blocks, but for the last token, which is computed at least."""
    return (tokens - 1) // BLOCK * BLOCK
