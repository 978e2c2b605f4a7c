"""An editor's side of the protocol: raw JSON-RPC over the standard streams of a real `kvp lsp` process.

Nothing of pygls is used here, so what the server says is read as any editor would. Waiting is bounded: a server that
does not answer fails the test.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import Any

Json = dict[str, Any]
PATIENCE_S = 90.0  # no timed test: a busy machine is no fault


class Client:
    """One server process and what it has said."""

    def __init__(self, folder: Path, capabilities: Json | None = None) -> None:
        self.folder = folder
        environment = {k: v for k, v in os.environ.items() if k != "KVPOLICY_DEBUG"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kvpolicy", "lsp", "--stdio"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=folder,
            env=environment,
        )
        self.diagnostics: dict[str, list[tuple[int | None, list[Json]]]] = {}
        self.asked: list[Json] = []  # requests of the server
        self._answers: dict[object, Json] = {}
        self._inbox: Queue[Json | None] = Queue()
        self._number = 0
        self._versions: dict[str, int] = {}
        Thread(target=self._read, daemon=True).start()
        self.capabilities = {} if capabilities is None else capabilities

    def __enter__(self) -> Client:
        self.initialized = self.request(
            "initialize",
            {"processId": None, "rootUri": self.folder.as_uri(), "capabilities": self.capabilities},
        )
        self.notify("initialized", {})
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()

    # --- messages ---------------------------------------------------------------------------------------

    def raw(self, data: bytes) -> None:
        """Bytes as they are."""
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def send(self, message: object) -> None:
        """One message."""
        body = json.dumps(message).encode()
        self.raw(b"Content-Length: %d\r\n\r\n" % len(body) + body)

    def notify(self, method: str, params: object) -> None:
        """A message that wants no answer."""
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def begin(self, method: str, params: object) -> int:
        """A request; its answer is waited for by `answer`."""
        self._number += 1
        self.send({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params})
        return self._number

    def answer(self, number: object) -> Json:
        """The whole answer to a request."""
        while (key := json.dumps(number)) not in self._answers:
            self.take()
        return self._answers.pop(key)

    def request(self, method: str, params: object) -> Any:
        """A request and its result; an error fails."""
        told = self.answer(self.begin(method, params))
        assert "error" not in told, told
        return told["result"]

    def refused(self, method: str, params: object) -> str:
        """The sentence of the error that a request is answered with."""
        told = self.answer(self.begin(method, params))
        assert "error" in told, told
        assert "Traceback" not in json.dumps(told), told
        return str(told["error"]["message"])

    def take(self) -> None:
        """Wait for one message."""
        try:
            message = self._inbox.get(timeout=PATIENCE_S)
        except Empty:
            raise AssertionError("the server does not answer") from None
        if message is None:
            assert self.process.stderr is not None
            raise AssertionError(f"the server has gone: {self.process.stderr.read().decode()[-2000:]}")
        if "method" in message and "id" in message:
            self.asked.append(message)
            self.send({"jsonrpc": "2.0", "id": message["id"], "result": None})
        elif "id" in message:
            self._answers[json.dumps(message["id"])] = message
        elif message.get("method") == "textDocument/publishDiagnostics":
            params = message["params"]
            row = (params.get("version"), params["diagnostics"])
            self.diagnostics.setdefault(params["uri"], []).append(row)

    def _read(self) -> None:
        stream = self.process.stdout
        assert stream is not None
        while True:
            length = 0
            while (line := stream.readline()) not in (b"\r\n", b""):
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            body = stream.read(length) if line else b""
            if not body:
                self._inbox.put(None)
                return
            self._inbox.put(json.loads(body))

    # --- texts ------------------------------------------------------------------------------------------

    def uri(self, name: str) -> str:
        """The URI of a file of the folder."""
        return (self.folder / name).as_uri()

    def open(self, name: str, text: str | None = None) -> list[Json]:
        """Open a text (by default what the file has), and what is told of it."""
        if text is None:
            text = (self.folder / name).read_text(encoding="utf-8")
        self._versions[name] = 1
        item = {"uri": self.uri(name), "languageId": "kvp", "version": 1, "text": text}
        self.notify("textDocument/didOpen", {"textDocument": item})
        return self.told(name)

    def change(self, name: str, *changes: Json) -> None:
        """Change a text without waiting for what is told of it."""
        self._versions[name] += 1
        named = {"uri": self.uri(name), "version": self._versions[name]}
        self.notify("textDocument/didChange", {"textDocument": named, "contentChanges": list(changes)})

    def told(self, name: str) -> list[Json]:
        """The diagnostics of the newest version of a text."""
        uri, version = self.uri(name), self._versions[name]
        while not any(seen == version for seen, _ in self.diagnostics.get(uri, ())):
            self.take()
        return next(rows for seen, rows in reversed(self.diagnostics[uri]) if seen == version)

    def becomes(self, name: str, *codes: str) -> list[Json]:
        """The newest diagnostics of a text, once they have these codes; never is a failure."""
        rows = self.diagnostics.setdefault(self.uri(name), [])
        while not rows or sorted(str(row["code"]) for row in rows[-1][1]) != sorted(codes):
            self.take()
        return rows[-1][1]

    def at(self, name: str, line: int, character: int) -> Json:
        """The parameters of a request about a position."""
        return {"textDocument": {"uri": self.uri(name)}, "position": {"line": line, "character": character}}

    def leave(self) -> int:
        """End the session as the protocol says; the exit status."""
        self.request("shutdown", None)
        self.notify("exit", None)
        return self.process.wait(PATIENCE_S)
