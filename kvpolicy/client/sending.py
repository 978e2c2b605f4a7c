"""Events on their way to the service: queued by whoever met them, posted in their order by a thread of its own.

Nobody waits: what does not fit into the queue, or cannot be delivered, is dropped, counted and said once. Where the
service says when to come again (429 with `retry-after`), all is kept until then, in its order. Rows are encoded where
they are put, so one that cannot be is refused alone; so is one that the service cannot read.
"""

from __future__ import annotations

import atexit
import json
import os
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, Request, build_opener

from kvpolicy.client.once import warn_once

MOST = 10_000  # events that wait
AT_ONCE = 200
REST_S = 1.0  # after a failure: what comes meanwhile is dropped
LONGEST_PAUSE_S = 300.0  # at the service's word: what comes meanwhile waits
AT_EXIT_S = 0.5
WITHIN_S = 2.0  # of one exchange

_opener = build_opener(ProxyHandler({}))  # the service is near; a proxy of the environment is not meant for it


_UNREADABLE = (400, 413, 422)  # answers to a batch that mean one row of it, or its length
MOST_REFUSED = 8  # rows one after the other: then it is not the rows


class Unreachable(Exception):
    """The service did not answer, or not with what was asked for. status: of its answer, None where there was none.
    again_s: seconds after which it wants to be asked again, None where it does not say."""

    def __init__(self, text: str, status: int | None = None, again_s: float | None = None) -> None:
        super().__init__(text)
        self.status, self.again_s = status, again_s


def exchange(method: str, url: str, document: object = None, key: str | None = None, within_s: float = WITHIN_S) -> Any:
    """One request to the service and its JSON answer (None: an empty one). document: bytes are JSON already. Raises
    Unreachable with what was said."""
    told = {"content-type": "application/json", **({} if key is None else {"authorization": f"Bearer {key}"})}
    data = document if isinstance(document, bytes) or document is None else json.dumps(document).encode()
    try:
        with _opener.open(Request(url, data, told, method=method), timeout=within_s) as answer:
            body = answer.read()
            return json.loads(body) if body else None
    except HTTPError as fault:
        said = f"{method} {url}: {fault.code} {_message(fault)}"
        raise Unreachable(said, fault.code, _again_s(fault)) from None
    except (URLError, OSError, ValueError) as fault:
        raise Unreachable(f"{method} {url}: {getattr(fault, 'reason', fault)}") from None


def _message(fault: HTTPError) -> str:
    try:
        return str(json.loads(fault.read())["error"]["message"])
    except Exception:
        return str(fault.reason)


def _again_s(fault: HTTPError) -> float | None:
    text = (fault.headers.get("retry-after") or "").strip()
    return float(text) if text.isascii() and text.isdecimal() else None


class Sender:
    """post: sends one batch, a JSON array, raising Unreachable. counts: `sent dropped failed refused`."""

    def __init__(self, post: Callable[[bytes], Any]) -> None:
        self._post = post
        self.counts: Counter[str] = Counter()
        self._closed = False
        self.begin()
        _all.add(self)

    def begin(self) -> None:
        """As new, but for its counts: also in a forked child, where the thread is not, its rows are the parent's, and
        whoever held the lock is gone."""
        self._waiting: deque[bytes] = deque()
        self._change = threading.Condition()
        self._thread: threading.Thread | None = None
        self._busy = False
        self._rests_until = 0.0
        self._goes_on_at = 0.0  # what waits until then is kept
        self._kept: list[bytes] = []  # of the batch that is being sent, in its order
        self._refused = 0  # rows in a row, by answers to them alone

    def put(self, row: Mapping[str, Any]) -> None:
        """Send it soon. Never waits, never raises."""
        try:
            text = json.dumps(row, allow_nan=False).encode()
        except Exception as fault:
            self.counts["refused"] += 1
            warn_once("encode", f"an event was not sent, as it is no JSON: {fault}")
            return
        with self._change:
            if self._closed or len(self._waiting) >= MOST or time.monotonic() < self._rests_until or not self._runs():
                self.counts["dropped"] += 1
                return
            self._waiting.append(text)
            self._change.notify_all()

    def _runs(self) -> bool:
        """Whether there is a thread that sends, by now."""
        if self._thread is not None and self._thread.is_alive():
            return True
        thread = threading.Thread(target=self._run, name="kvpolicy-events", daemon=True)
        try:
            thread.start()
        except RuntimeError as fault:  # there are too many, or the interpreter ends
            warn_once("thread", f"events are not delivered: {fault}")
            return False
        self._thread, self._busy = thread, False
        return True

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
                pause = self._goes_on_at - time.monotonic()
                if pause > 0 and self._waiting and not self._closed:
                    self._change.wait(pause)
                    continue
                if pause > 0:  # closed, and nobody waits any longer
                    self.counts["dropped"] += len(self._waiting)
                    self._waiting.clear()
                if not self._waiting:
                    return
                rows = [self._waiting.popleft() for _ in range(min(AT_ONCE, len(self._waiting)))]
                self._busy = True
            try:
                self._send(rows)
            finally:
                with self._change:
                    self._waiting.extendleft(reversed(self._kept))
                    self._kept.clear()
                    self._busy = False
                    self._change.notify_all()

    def _send(self, rows: Sequence[bytes]) -> None:
        try:
            answer = self._post(b"[" + b",".join(rows) + b"]")
            self.counts["sent"] += len(rows)
            self._refused = 0
            hints = answer.get("hints", ()) if isinstance(answer, Mapping) else ()
            for hint in hints:
                if hint.get("status") == "rejected":
                    self._refuse(str(hint.get("reason")))
        except Exception as fault:  # whatever it is, the application goes on
            status, again_s = getattr(fault, "status", None), getattr(fault, "again_s", None)
            if status in _UNREADABLE:
                self._send_apart(rows, fault)
            elif status == 429 and again_s is not None:
                self._keep(rows, fault, again_s)
            else:
                self._rest(rows, fault)

    def _send_apart(self, rows: Sequence[bytes], fault: Exception) -> None:
        """One row costs no other its way."""
        if len(rows) == 1:
            self._refuse(str(fault))
            self._refused += 1
            if self._refused >= MOST_REFUSED:  # such as a proxy that answers so to everything
                self._rest((), fault)
            return
        for half in (rows[: len(rows) // 2], rows[len(rows) // 2 :]):
            if self._kept:  # INVARIANT: no row overtakes another
                self._kept += half
            elif time.monotonic() < self._rests_until:
                self.counts["dropped"] += len(half)
            else:
                self._send(half)

    def _refuse(self, why: str) -> None:
        self.counts["refused"] += 1
        warn_once("refused", f"the service refused an event: {why}")

    def _keep(self, rows: Sequence[bytes], fault: Exception, again_s: float) -> None:
        """They are too many for now, and wait for as long as the service says."""
        warn_once("later", f"events are delivered later: {fault}")
        self._kept += rows
        self._goes_on_at = time.monotonic() + min(max(again_s, REST_S), LONGEST_PAUSE_S)

    def _rest(self, rows: Sequence[bytes], fault: Exception) -> None:
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


def _in_child() -> None:
    for sender in list(_all):
        sender.begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
