"""The thread that talks to the server, and how others wait for it: never longer than their budget.

One thread and one connection: nothing that calls the store ever touches a socket, so a server that accepts and never
answers holds up this thread and nobody else. It works in rounds (`round`): whatever gathers while one is under way goes
out together with the next. When nobody has anything to say it looks every `poll` seconds for what others said, and
five times less often where for long nobody said anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as Late
from typing import Any, TypeVar

from kvpolicy.store.ask import Ask, Unanswered
from kvpolicy.store.breaker import Breaker
from kvpolicy.store.round import Refused, Round
from kvpolicy.store.wire import Faults, Wire

T = TypeVar("T")
MOST_ASKS = 1024  # waiting at once; beyond, the in-process store answers
_A_ROUND = 256
_QUIET_ROUNDS, _MOST_QUIET = 100, 5  # after so many rounds in which nothing happened it looks less often


class Link:
    """connect: makes a wire; may raise. poll: seconds between rounds while nothing happens here."""

    def __init__(self, connect: Callable[[], Wire], round_: Round, poll: float) -> None:
        self.breaker = Breaker()
        self._connect, self._round, self._poll = connect, round_, poll
        self._counters = round_.counters
        self._asks: deque[Ask[Any]] = deque()
        self._wake = threading.Event()
        self._tried = threading.Event()
        self._closing = False
        self._wire: Wire | None = None
        self._thread = threading.Thread(target=self._work, name="kvpolicy store", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """There is something to send."""
        self._wake.set()

    def first_try(self, timeout: float) -> bool:
        """Wait until it is known whether the server answers."""
        return self._tried.wait(timeout)

    # --- for callers --------------------------------------------------------------------------------------

    def settle(self, ask: Ask[T], budget: float) -> T:
        """The server's answer, or after `budget` seconds the in-process one."""
        if not self._begin(ask):
            return self._instead(ask)
        try:
            return ask.read(ask.future.result(budget))
        except (Late, CancelledError):
            return self._late(ask)
        except Exception as fault:
            return self._instead(ask, fault)

    async def settled(self, ask: Ask[T], budget: float) -> T:
        """The same without holding up the event loop."""
        if not self._begin(ask):
            return self._instead(ask)
        future = asyncio.wrap_future(ask.future)
        try:
            done, _ = await asyncio.wait((future,), timeout=budget)
        except asyncio.CancelledError:
            ask.future.cancel()
            raise
        if not done:
            future.cancel()  # or an answer that comes later would be reported as one that nobody took
            return self._late(ask)
        try:
            return ask.read(future.result())
        except Exception as fault:
            return self._instead(ask, fault)

    def post(self, ask: Ask[None]) -> None:
        """Let the server know, without waiting. What it then does not hear ends by its time to live."""
        if not self._begin(ask):
            self._counters["unheard"] += 1

    def late(self) -> None:
        """Somebody waited in vain: nobody waits any more until a round has ended."""
        self._counters["late"] += 1
        self.breaker.late = True

    def _begin(self, ask: Ask[Any]) -> bool:
        if not self.breaker.asks or self._closing or len(self._asks) >= MOST_ASKS:
            return False
        self._asks.append(ask)
        self._wake.set()
        return True

    def _late(self, ask: Ask[T]) -> T:
        ask.future.cancel()  # if it is not under way it is not asked at all
        self.late()
        return self._instead(ask)

    def _instead(self, ask: Ask[T], fault: Exception | None = None) -> T:
        if fault is not None and not isinstance(fault, (Unanswered, *Faults)):
            self._counters["failures"] += 1  # an answer that cannot be read: somebody else writes under our prefix
        self._counters["answered_locally"] += 1
        return ask.local()

    # --- the thread ---------------------------------------------------------------------------------------

    def _work(self) -> None:
        while not self._closing:
            # Nobody waits for a look: whoever decides tells the request first, and so hears all that was told before.
            poll = self._poll * min(_MOST_QUIET, 1 + self._round.quiet // _QUIET_ROUNDS)
            self._wake.wait(poll if self.breaker.closed else max(0.001, self.breaker.pause()))
            self._wake.clear()
            if self.breaker.closed or self.breaker.pause() <= 0.0:
                self._try()
            else:
                self._refuse()
        self._let_go()

    def _try(self) -> None:
        asks = [ask for ask in self._waiting() if ask.future.set_running_or_notify_cancel()]
        try:
            if self._wire is None:
                self._wire = self._connect()
                self._round.restart()
            self._round.run(self._wire, asks)
        except Refused as fault:
            self._broken(str(fault))
        except Faults as fault:
            self._broken(reason_of(fault))
        except Exception as fault:  # ours; the thread must outlive it
            self._counters["failures"] += 1
            self._broken(f"{type(fault).__name__}: {fault}")
        else:
            if self.breaker.well():
                self._counters["healed"] += 1
            if self._round.more or self._round.force.outstanding:
                self._wake.set()
        finally:
            for ask in asks:
                if not ask.future.done():
                    ask.future.set_exception(Unanswered(self.breaker.reason))
            if not self.breaker.closed or not self._round.force.outstanding:
                self._tried.set()

    def _waiting(self) -> list[Ask[Any]]:
        asks: list[Ask[Any]] = []
        with contextlib.suppress(IndexError):
            while len(asks) < _A_ROUND:
                asks.append(self._asks.popleft())
        if self._asks:
            self._wake.set()
        return asks

    def _broken(self, reason: str) -> None:
        if self.breaker.failed(reason):
            self._counters["opened"] += 1
        self._disconnect()
        self._refuse()
        self._round.feed.deliver_early()

    def _refuse(self) -> None:
        for ask in self._waiting():
            if ask.future.set_running_or_notify_cancel():
                ask.future.set_exception(Unanswered(self.breaker.reason))

    def _disconnect(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            with contextlib.suppress(Exception):
                wire.close()

    # --- the end ------------------------------------------------------------------------------------------

    def close(self, budget: float) -> None:
        """Send what waits, as far as `budget` seconds allow, say goodbye, and end the thread."""
        until = time.monotonic() + budget
        while self.breaker.closed and self._round.feed.has_outgoing and time.monotonic() < until:
            self._wake.set()
            time.sleep(0.001)
        self._closing = True
        self._wake.set()
        self._thread.join(max(0.05, until - time.monotonic()))
        self._refuse()

    def _let_go(self) -> None:
        if self._wire is not None and self.breaker.closed:
            with contextlib.suppress(*Faults):
                self._round.bye(self._wire)
        self._disconnect()


def settle_now(future: Future[bool], budget: float) -> bool | None:
    """What the future says within the budget; None: nothing."""
    try:
        return future.result(budget)
    except (Late, CancelledError):
        return None


def reason_of(fault: BaseException) -> str:
    """Why the server is not used, for people. No address and no password is in it."""
    kind = type(fault).__name__
    reasons = {
        "ReadOnlyError": "read-only: it is a replica",
        "OutOfMemoryError": "full: it takes no more writes",
        "BusyLoadingError": "loading its data",
        "AuthenticationError": "it refuses the password",
        "NoPermissionError": "it does not permit a command",
        "TimeoutError": "no answer in time",
        "MasterNotFoundError": "no Sentinel knows a master",
        "ClusterDownError": "the cluster is down",
        "MovedError": "a slot has moved",
        "AskError": "a slot is moving",
        "RedisClusterException": "no node of the cluster answers",
    }
    if kind in reasons:
        return reasons[kind]
    if isinstance(fault, OSError) or kind == "ConnectionError":
        return "no connection"
    first = str(fault).split(" ", 1)[0]
    return {"READONLY": reasons["ReadOnlyError"], "OOM": reasons["OutOfMemoryError"]}.get(first, f"{kind}: {first}")
