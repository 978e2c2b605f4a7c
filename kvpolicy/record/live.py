"""A recording of a client's own calls: `Recorder("trace.jsonl").attach(client)`.

A hook on an httpx or httpx2 client (or on the SDK around one) writes a row for each request; what it answers is not
read. Rows are written as they come, so the file is a trace at any moment.
"""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any, TypeVar

from kvpolicy.client.once import warn_once
from kvpolicy.client.scope import current
from kvpolicy.client.transport import hooked
from kvpolicy.faults import InputFault
from kvpolicy.record.calls import Recorded, Recording
from kvpolicy.record.pieces import pieces

Client = TypeVar("Client")


class Recorder:
    """path: the trace's file, begun anew. Raises InputFault where it cannot be written."""

    def __init__(self, path: str | Path, *, label: str = "recorded: live", block_size: int = 16) -> None:
        self._recording, self._lock = Recording(label, block_size), threading.Lock()
        try:
            self._file = Path(path).open("w", encoding="utf-8")  # noqa: SIM115
        except OSError as fault:
            raise InputFault(f"{path}: {fault.strerror}") from None
        self._began = time.monotonic()
        self.calls = 0
        self._put(self._recording.header())

    def attach(self, client: Client) -> Client:
        """The client itself, whose calls are recorded from now on. Raises InputFault as `kvpolicy.annotate` does."""
        return hooked(client, self.note)

    def note(self, request: Any) -> None:
        """Write a row for a request. Never raises."""
        try:
            if request.method != "POST":
                return
            at, scope = time.monotonic(), current()
            body = json.loads(request.content)
            if not isinstance(body, dict) or not {"messages", "input", "prompt"} & body.keys():
                return
            names = ("session", "run", "agent", "branch")
            owner = {name: getattr(scope, name) for name in names}
            model = body.get("model")
            call = Recorded(at, pieces(body), owner, model if isinstance(model, str) else None)
            with self._lock:
                self._put(self._recording.row(call, self._began))
                self.calls += 1
        except Exception as fault:
            warn_once("record", f"a call was not recorded: {fault!r}")

    def close(self) -> None:
        """End the recording."""
        with self._lock:
            self._file.close()

    def _put(self, row: dict[str, Any]) -> None:
        self._file.write(json.dumps(row, separators=(",", ":")) + "\n")
        self._file.flush()
