"""Events on their way to the service: queued by whoever met them, posted in their order by a thread of its own.

Nobody waits: what does not fit into the queue, or cannot be delivered, is dropped, counted and said once.
"""

from __future__ import annotations

import atexit
import json
import os
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, Request, build_opener

from kvpolicy.client.once import warn_once

MOST = 10_000  # events that wait
AT_ONCE = 200
REST_S = 1.0  # after a failure: what comes meanwhile is dropped
AT_EXIT_S = 0.5
WITHIN_S = 2.0  # of one exchange

_opener = build_opener(ProxyHandler({}))  # the service is near; a proxy of the environment is not meant for it


class Unreachable(Exception):
    """The service did not answer, or not with what was asked for."""


def exchange(method: str, url: str, document: object = None, key: str | None = None, within_s: float = WITHIN_S) -> Any:
    """One request to the service and its JSON answer (None: an empty one). Raises Unreachable with what was said."""
    told = {"content-type": "application/json", **({} if key is None else {"authorization": f"Bearer {key}"})}
    data = None if document is None else json.dumps(document).encode()
    try:
        with _opener.open(Request(url, data, told, method=method), timeout=within_s) as answer:
            body = answer.read()
            return json.loads(body) if body else None
    except HTTPError as fault:
        raise Unreachable(f"{method} {url}: {fault.code} {_message(fault)}") from None
    except (URLError, OSError, ValueError) as fault:
        raise Unreachable(f"{method} {url}: {getattr(fault, 'reason', fault)}") from None


def _message(fault: HTTPError) -> str:
    try:
        return str(json.loads(fault.read())["error"]["message"])
    except Exception:
        return str(fault.reason)


class Sender:
    """post: sends one batch, raising Unreachable. counts: `sent dropped failed refused`."""

    def __init__(self, post: Callable[[list[Mapping[str, Any]]], Any]) -> None:
        self._post = post
        self._waiting: deque[Mapping[str, Any]] = deque()
        self._change = threading.Condition()
        self._thread: threading.Thread | None = None
        self._process = os.getpid()
        self._busy = self._closed = False
        self._rests_until = 0.0
        self.counts: Counter[str] = Counter()
        _all.add(self)

    def put(self, row: Mapping[str, Any]) -> None:
        """Send it soon. Never waits, never raises."""
        with self._change:
            if self._process != os.getpid():  # after a fork: the thread stayed with the parent, and so did its rows
                self._process, self._thread, self._busy = os.getpid(), None, False
                self._waiting.clear()
            if self._closed or len(self._waiting) >= MOST or time.monotonic() < self._rests_until:
                self.counts["dropped"] += 1
                return
            self._waiting.append(row)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="kvpolicy-events", daemon=True)
                self._thread.start()
            self._change.notify_all()

    def flush(self, within_s: float = WITHIN_S) -> bool:
        """Wait until all that was put is sent or dropped. False where that took longer."""
        with self._change:
            return self._change.wait_for(lambda: not self._waiting and not self._busy, within_s)

    def close(self, within_s: float = WITHIN_S) -> None:
        """Send what waits, and take no more."""
        self.flush(within_s)
        with self._change:
            self._closed = True
            self._change.notify_all()

    def _run(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: self._waiting or self._closed)
                if not self._waiting:
                    return
                rows = [self._waiting.popleft() for _ in range(min(AT_ONCE, len(self._waiting)))]
                self._busy = True
            try:
                self._send(rows)
            finally:
                with self._change:
                    self._busy = False
                    self._change.notify_all()

    def _send(self, rows: list[Mapping[str, Any]]) -> None:
        try:
            answer = self._post(rows)
            self.counts["sent"] += len(rows)
            hints = answer.get("hints", ()) if isinstance(answer, Mapping) else ()
            for hint in hints:
                if hint.get("status") == "rejected":
                    self.counts["refused"] += 1
                    warn_once("refused", f"the service refused an event: {hint.get('reason')}")
        except Exception as fault:  # whatever it is, the application goes on
            self.counts["failed"] += len(rows)
            warn_once("unreachable", f"events are not delivered: {fault}")
            with self._change:
                self.counts["dropped"] += len(self._waiting)
                self._waiting.clear()
                self._rests_until = time.monotonic() + REST_S


_all: weakref.WeakSet[Sender] = weakref.WeakSet()


@atexit.register
def _at_exit() -> None:
    """The last events (`workflow_end`) are worth a moment."""
    until = time.monotonic() + AT_EXIT_S
    for sender in list(_all):
        sender.flush(max(0.0, until - time.monotonic()))
