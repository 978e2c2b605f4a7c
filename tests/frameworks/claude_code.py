"""Claude Code, as the SDK brings it, against a simulated engine: what stands between them, and what it is started with.

The engine says what a body tells it to (`sim_reply`); Claude Code's bodies cannot be told that, so it goes through an
address that adds it, and passes everything else on to the service.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest

Say = Callable[[Mapping[str, Any], str | None], Any]
_DROPPED = {"host", "content-length", "connection", "accept-encoding", "transfer-encoding", "content-encoding"}


class Between:
    """say: what the engine is to answer, from a body and the id of the sub-agent that asks. asked: all of these."""

    def __init__(self, service: str) -> None:
        self.say: Say = lambda body, agent: "fine"
        self.asked: list[tuple[str | None, Mapping[str, Any]]] = []
        self.url = ""
        self._client = httpx.Client(base_url=service, timeout=60)

    def passed(self, method: str, path: str, headers: Mapping[str, str], content: bytes) -> httpx.Response:
        """One request and its answer."""
        kept = {name: value for name, value in headers.items() if name.lower() not in _DROPPED}
        if path.partition("?")[0].endswith("/v1/messages"):
            body, agent = json.loads(content), headers.get("x-claude-code-agent-id")
            self.asked.append((agent, body))
            content = json.dumps({**body, "max_tokens": 32, "sim_reply": self.say(body, agent)}).encode()
        return self._client.request(method, path, headers=kept, content=content)


@contextmanager
def between(service: str) -> Iterator[Between]:
    """Such an address."""
    made = Between(service)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing."""

        def _pass(self) -> None:
            content = self.rfile.read(int(self.headers.get("content-length") or 0))
            answer = made.passed(self.command, self.path, dict(self.headers), content)
            self.send_response(answer.status_code)
            for name, value in answer.headers.items():
                if name not in _DROPPED:
                    self.send_header(name, value)
            self.send_header("content-length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

        do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _pass

    class Server(ThreadingHTTPServer):
        request_queue_size = 128

    server = Server(("127.0.0.1", 0), Handler)
    made.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()


def at_home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Claude Code is started with: a home of its own, no key, and no way to anywhere but this machine."""
    for name in list(os.environ):
        if name.startswith(("ANTHROPIC_", "CLAUDE", "MCP_", "OTEL_", "AWS_")):
            monkeypatch.delenv(name)
    told = {
        "HOME": str(folder),
        "CLAUDE_CONFIG_DIR": str(folder / "claude"),
        "ANTHROPIC_API_KEY": "none",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
        "HTTPS_PROXY": "http://127.0.0.1:9",
        "HTTP_PROXY": "http://127.0.0.1:9",
        "NO_PROXY": "127.0.0.1",
    }
    for name, value in told.items():
        monkeypatch.setenv(name, value)


def calls_tool(call: str, name: str, **arguments: Any) -> dict[str, Any]:
    """An answer that asks for a tool."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"content": "", "tool_calls": [{"id": call, "type": "function", "function": function}]}


def answered(body: Mapping[str, Any]) -> set[str]:
    """The calls whose results a body has."""
    blocks = [block for turn in body["messages"] if isinstance(turn["content"], list) for block in turn["content"]]
    return {block["tool_use_id"] for block in blocks if block.get("type") == "tool_result"}
