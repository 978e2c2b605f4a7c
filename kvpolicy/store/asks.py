"""Every question that a store may be asked: its script, how the answer reads, and the in-process answer.

`redis` waits for the answers, `awaited` does so for asyncio. What the server grants is also noted in-process, so that a
replica that loses the server goes on from there; of a limit, a replica alone grants its share among those last seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from kvpolicy.faults import InputFault
from kvpolicy.store.ask import Ask
from kvpolicy.store.boards import KEPT, checked
from kvpolicy.store.contract import Begun, Document, Entered, Pin, Published, Spent, Version, lasting, named
from kvpolicy.store.documents import LARGEST_B, MOST_SOURCES, dumped
from kvpolicy.store.force import body_of, version_of
from kvpolicy.store.keys import BOARD_S
from kvpolicy.store.round import Round
from kvpolicy.store.wire import Command

_TTL_MS = int(BOARD_S * 1000)


def _ms(seconds: float) -> int:
    return max(1, round(lasting(seconds) * 1000))


class Asks:
    """The questions of one replica. Arguments as in `contract.Store`; all raise InputFault for what cannot be meant."""

    def __init__(self, round_: Round) -> None:
        self._round, self._keys, self._local, self._force = round_, round_.keys, round_.local, round_.force

    # --- versions -----------------------------------------------------------------------------------------

    def publish(self, name: str, files: Mapping[str, str], expect: int | None) -> Ask[Published]:
        """A new version."""
        kept = checked(name, files)

        def read(answer: Any) -> Published:
            if answer[0] != b"well":
                return Published(
                    False, self._local.policy(name), True, f"serial {int(answer[1])} is in force, not {expect}"
                )
            version = Version(name, int(answer[1]), int(answer[2]), kept, int(answer[3]) / 1000)
            return self._force.decided(Published(True, version, True))

        expected = "" if expect is None else int(expect)
        arguments = (name, expected, body_of(kept), KEPT, _TTL_MS)
        command = Command("publish", self._keys.board(name), arguments)
        return Ask(command, read, lambda: self._local.publish(name, kept, expect))

    def roll_back(self, name: str, to: int | None) -> Ask[Published]:
        """An earlier version."""
        checked(name, {})

        def read(answer: Any) -> Published:
            if answer[0] == b"well":
                version = version_of(name, answer[1:])
                if version is not None:
                    return self._force.decided(Published(True, version, True))
            if answer[0] == b"never":
                return Published(False, None, True, f"no version of {name} was ever in force")
            number = answer[1].decode() if isinstance(answer[1], bytes) else answer[1]
            return Published(False, self._local.policy(name), True, f"version {number} of {name} is not kept")

        arguments = (name, "" if to is None else int(to), _TTL_MS)
        command = Command("roll_back", self._keys.board(name), arguments)
        return Ask(command, read, lambda: self._local.roll_back(name, to))

    # --- documents ----------------------------------------------------------------------------------------

    def keep(self, kind: str, tenant: str, source: str, body: Mapping[str, object], ttl: float) -> Ask[bool]:
        """A document; it is kept in-process too, so that it is there while the server is not."""
        data = dumped(body)
        on_disk = self._local.keep(kind, tenant, source, body, ttl)
        key = self._keys.of(named("tenant", tenant), "d", kind)
        command = Command("document", (key,), (named("source", source), data, _ms(ttl), MOST_SOURCES))
        return Ask(command, lambda _: True, lambda: on_disk)

    def kept(self, kind: str, tenant: str) -> Ask[tuple[Document, ...]]:
        """Documents of all sources: the server's, and those of this replica that it lacks."""

        def read(answer: Any) -> tuple[Document, ...]:
            pairs = answer.items() if isinstance(answer, dict) else zip(answer[::2], answer[1::2], strict=True)
            now = self._local.now()
            found = {document.source: document for pair in pairs if (document := document_of(*pair, now)) is not None}
            for document in self._local.kept(kind, tenant):
                found.setdefault(document.source, document)
            return tuple(sorted(found.values(), key=lambda document: -document.at))

        key = self._keys.of(named("tenant", tenant), "d", named("kind", kind))
        return Ask(Command("HGETALL", (key,)), read, lambda: self._local.kept(kind, tenant))

    # --- sessions, requests, quotas -----------------------------------------------------------------------

    def pin(self, tenant: str, session: str, worker: str, ttl: float, move: bool) -> Ask[Pin]:
        """A session's worker."""

        def read(answer: Any) -> Pin:
            where = answer[0].decode(errors="replace")
            self._local.pin(tenant, session, where, ttl, True)
            return Pin(where, bool(answer[1]), True)

        key = self._keys.of(named("tenant", tenant), "p", named("session", session))
        command = Command("pin", (key,), (named("worker", worker), _ms(ttl), int(move)))
        return Ask(command, read, lambda: self._local.pin(tenant, session, worker, ttl, move))

    def pinned(self, tenant: str, session: str) -> Ask[Pin | None]:
        """Where a session is."""

        def read(answer: Any) -> Pin | None:
            return None if answer is None else Pin(answer.decode(errors="replace"), False, True)

        key = self._keys.of(named("tenant", tenant), "p", named("session", session))
        return Ask(Command("GET", (key,)), read, lambda: self._local.pinned(tenant, session))

    def unpin(self, tenant: str, session: str) -> Ask[None]:
        """A session may go anywhere."""
        self._local.unpin(tenant, session)
        key = self._keys.of(named("tenant", tenant), "p", named("session", session))
        return Ask(Command("DEL", (key,)), lambda _: None, lambda: None)

    def begin(self, tenant: str, key: str, ttl: float) -> Ask[Begun]:
        """A request with an idempotency key."""

        def read(answer: Any) -> Begun:
            if answer[0]:
                self._local.abandon(tenant, key)
                self._local.begin(tenant, key, ttl)
                return Begun(True, None, True)
            held: bytes = answer[1]
            return Begun(False, held[1:].decode(errors="replace") if held[:1] == b"d" else None, True)

        at = self._keys.of(named("tenant", tenant), "i", named("key", key))
        return Ask(Command("begin", (at,), (_ms(ttl),)), read, lambda: self._local.begin(tenant, key, ttl))

    def finish(self, tenant: str, key: str, result: str, ttl: float) -> Ask[None]:
        """It is done."""
        self._local.finish(tenant, key, result, ttl)
        at = self._keys.of(tenant, "i", key)
        value = b"d" + result.encode(errors="replace")
        return Ask(Command("SET", (at,), (value, "PX", _ms(ttl))), lambda _: None, lambda: None)

    def abandon(self, tenant: str, key: str) -> Ask[None]:
        """It is over."""
        self._local.abandon(tenant, key)
        at = self._keys.of(named("tenant", tenant), "i", named("key", key))
        return Ask(Command("abandon", (at,)), lambda _: None, lambda: None)

    def spend(self, tenant: str, what: str, amount: float, limit: float, window: float) -> Ask[Spent]:
        """An amount within a window."""
        if isinstance(amount, bool) or not 0.0 <= amount < float("inf"):
            raise InputFault(f"an amount is a number not below 0, not {amount!r}")

        def read(answer: Any) -> Spent:
            if answer[0]:
                self._local.spend(tenant, what, amount, float("inf"), window)
            return Spent(bool(answer[0]), float(answer[1]), True)

        def local() -> Spent:
            return self._local.spend(tenant, what, amount, limit / self._round.replicas, window)

        key = self._keys.of(named("tenant", tenant), "q", named("what", what))
        command = Command("spend", (key,), (repr(float(amount)), repr(float(limit)), _ms(window)))
        return Ask(command, read, local)

    def enter(self, tenant: str, what: str, holder: str, limit: int, ttl: float) -> Ask[Entered]:
        """A place among a few."""

        def read(answer: Any) -> Entered:
            if answer[0]:
                self._local.enter(tenant, what, holder, 1 << 60, ttl)
            return Entered(bool(answer[0]), int(answer[1]), True)

        def local() -> Entered:
            share = max(1, limit // self._round.replicas) if limit > 0 else 0
            return self._local.enter(tenant, what, holder, share, ttl)

        key = self._keys.of(named("tenant", tenant), "c", named("what", what))
        command = Command("enter", (key,), (named("holder", holder), int(limit), _ms(ttl)))
        return Ask(command, read, local)

    def leave(self, tenant: str, what: str, holder: str) -> Ask[None]:
        """The place is free."""
        self._local.leave(tenant, what, holder)
        key = self._keys.of(named("tenant", tenant), "c", named("what", what))
        return Ask(Command("ZREM", (key,), (named("holder", holder),)), lambda _: None, lambda: None)


def document_of(source: bytes, value: bytes, now: float) -> Document | None:
    """A document as it lies on the server; None for what is none, and for one whose time is over."""
    at, _, rest = value.partition(b" ")
    end, _, body = rest.partition(b" ")
    try:
        if len(body) > LARGEST_B or int(end) / 1000 <= now:
            return None
        document = orjson.loads(body)
        return Document(source.decode(), int(at) / 1000, document) if isinstance(document, dict) else None
    except (ValueError, TypeError):
        return None
