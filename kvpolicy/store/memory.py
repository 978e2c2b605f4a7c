"""The in-process store: one replica that shares with nobody. With a folder, what must last is also in files.

The default store, and what `redis` falls back on. Called by any thread; a lock is held for the moment of a change. The
log of records, pins, keys and counts die with the process; versions, documents and the key of the salts do not, where
there is a folder.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from hashlib import sha256
from uuid import uuid4

from kvpolicy.faults import InputFault
from kvpolicy.store import salts
from kvpolicy.store.boards import Boards, checked
from kvpolicy.store.contract import (
    LOCAL,
    LONGEST_S,
    Begun,
    Document,
    Entered,
    Gap,
    Pin,
    Published,
    Salt,
    Spent,
    Status,
    Version,
    lasting,
    named,
)
from kvpolicy.store.counting import Counting
from kvpolicy.store.documents import Documents
from kvpolicy.store.log import KEPT, Log
from kvpolicy.store.record import Record, check, encode
from kvpolicy.store.shelf import Shelf


class MemoryStore:
    """See `contract.Store`. clock: seconds since 1970; keep: records that a reader may be behind; folder: where what
    must last is written; secret: the key of the salts, at least 16 bytes."""

    def __init__(
        self,
        folder: str | os.PathLike[str] | None = None,
        *,
        clock: Callable[[], float] = time.time,
        keep: int = KEPT,
        secret: bytes | None = None,
    ) -> None:
        self.shards = 1
        if secret is not None and len(secret) < 16:
            raise InputFault("the secret of a store has at least 16 bytes")
        self.counters: Counter[str] = Counter()
        self.secret = secret
        self.shelf = None if folder is None else Shelf(folder)
        self._clock, self._latest = clock, 0.0
        self._lock = threading.Lock()
        self._log, self._boards, self._counting = Log(keep), Boards(), Counting()
        self._documents = Documents()
        self._load()

    # --- the store itself ---------------------------------------------------------------------------------

    def now(self) -> float:
        """See `contract.Store`."""
        self._latest = max(self._latest, self._clock())
        return self._latest

    def status(self) -> Status:
        """See `contract.Store`."""
        return Status(LOCAL, "no other replica is asked", 1, dict(self.counters))

    def close(self) -> None:
        """See `contract.Store`."""

    # --- records ------------------------------------------------------------------------------------------

    def append(self, record: Record) -> None:
        """See `contract.Store`. Raises InputFault for a record that cannot be meant."""
        now = self.now()
        record = check(record).timed(now, uuid4().hex)
        encode(record)  # refused here is refused there
        with self._lock:
            new = self._log.append(record, now)
            self.counters["appended" if new else "duplicates"] += 1

    def take(self, limit: int = 1000) -> list[Record | Gap]:
        """See `contract.Store`."""
        with self._lock:
            return self._log.take(limit)

    def settle(self, budget: float | None = None) -> bool:
        """See `contract.Store`."""
        return True

    # --- versions -----------------------------------------------------------------------------------------

    def publish(self, name: str, files: Mapping[str, str], expect: int | None = None) -> Published:
        """See `contract.Store`."""
        files = checked(name, files)
        with self._lock:
            answer = self._boards.publish(name, files, expect, self.now())
            return self._kept(answer)

    def roll_back(self, name: str, to: int | None = None) -> Published:
        """See `contract.Store`."""
        with self._lock:
            return self._kept(self._boards.roll_back(name, to))

    def policy(self, name: str) -> Version | None:
        """See `contract.Store`."""
        return self._boards.current(name)

    def heard(self, version: Version, before: Version | None = None) -> None:
        """Others put this in force; `before` was, until then."""
        with self._lock:
            self._boards.heard(version, before)
            self._write("versions", self._boards.export())

    def policies(self) -> tuple[Version, ...]:
        """All that is in force."""
        with self._lock:
            found = [self._boards.current(name) for name in self._boards.names()]
        return tuple(version for version in found if version is not None)

    def history(self, name: str) -> list[Version]:
        """What is in force, and the version before it where it is kept."""
        with self._lock:
            return self._boards.history(name)

    def _kept(self, answer: Published) -> Published:
        if answer.accepted:
            self._write("versions", self._boards.export())
        return answer

    # --- documents ----------------------------------------------------------------------------------------

    def keep(self, kind: str, tenant: str, source: str, body: Mapping[str, object], ttl: float = LONGEST_S) -> bool:
        """See `contract.Store`."""
        named("kind", kind), named("tenant", tenant), named("source", source)
        now = self.now()
        with self._lock:
            self._documents.put(kind, tenant, Document(source, now, body), now + lasting(ttl), now)
            return self._write(_file_of(kind, tenant), self._documents.export(kind, tenant))

    def kept(self, kind: str, tenant: str) -> tuple[Document, ...]:
        """See `contract.Store`."""
        with self._lock:
            return self._documents.all(kind, tenant, self.now())

    # --- sessions, requests, quotas -----------------------------------------------------------------------

    def pin(self, tenant: str, session: str, worker: str, ttl: float, move: bool = False) -> Pin:
        """See `contract.Store`."""
        key = (named("tenant", tenant), named("session", session))
        with self._lock:
            return self._counting.pin(key, named("worker", worker), lasting(ttl), move, self.now())

    def pinned(self, tenant: str, session: str) -> Pin | None:
        """See `contract.Store`."""
        with self._lock:
            return self._counting.pinned((tenant, session), self.now())

    def unpin(self, tenant: str, session: str) -> None:
        """See `contract.Store`."""
        with self._lock:
            self._counting.unpin((tenant, session))

    def begin(self, tenant: str, key: str, ttl: float) -> Begun:
        """See `contract.Store`."""
        with self._lock:
            return self._counting.begin((named("tenant", tenant), named("key", key)), lasting(ttl), self.now())

    def finish(self, tenant: str, key: str, result: str, ttl: float) -> None:
        """See `contract.Store`."""
        if not isinstance(result, str) or len(result) > 16384:
            raise InputFault("the result kept for a retry is a text of at most 16384 characters")
        with self._lock:
            self._counting.finish((named("tenant", tenant), named("key", key)), result, lasting(ttl), self.now())

    def abandon(self, tenant: str, key: str) -> None:
        """See `contract.Store`."""
        with self._lock:
            self._counting.abandon((tenant, key))

    def spend(self, tenant: str, what: str, amount: float, limit: float, window: float) -> Spent:
        """See `contract.Store`."""
        key = (named("tenant", tenant), named("what", what))
        if not 0.0 <= amount < math.inf:
            raise InputFault(f"an amount is a number not below 0, not {amount!r}")
        with self._lock:
            return self._counting.spend(key, amount, limit, lasting(window), self.now())

    def enter(self, tenant: str, what: str, holder: str, limit: int, ttl: float) -> Entered:
        """See `contract.Store`."""
        key = (named("tenant", tenant), named("what", what))
        with self._lock:
            return self._counting.enter(key, named("holder", holder), limit, lasting(ttl), self.now())

    def leave(self, tenant: str, what: str, holder: str) -> None:
        """See `contract.Store`."""
        with self._lock:
            self._counting.leave((tenant, what), holder)

    # --- salts --------------------------------------------------------------------------------------------

    def salt(self, tenant: str) -> Salt:
        """See `contract.Store`."""
        if self.secret is None:
            self.know_key(salts.mint_key())
        return salts.salt(self.secret, named("tenant", tenant), self.policy(salts.BOARD))

    def renew_salt(self, tenant: str) -> bool:
        """See `contract.Store`."""
        self.salt(tenant)
        files = salts.renewed(self.secret, tenant, self.policy(salts.BOARD))
        return self.publish(salts.BOARD, files).accepted

    def know_key(self, key: bytes) -> None:
        """This is the key of the salts from now on."""
        with self._lock:
            if key != self.secret:
                self.secret = key
                self._write("key", {"key": key.hex()}, sync=False)

    # --- files --------------------------------------------------------------------------------------------

    def _write(self, name: str, document: Mapping[str, object], sync: bool = True) -> bool:
        if self.shelf is None:
            return False
        written = self.shelf.write(name, document, sync)
        self.counters["written" if written else "unwritten"] += 1
        return written

    def _load(self) -> None:
        if self.shelf is None:
            return
        for name in self.shelf.names():
            document = self.shelf.read(name)
            try:
                if document is None:
                    continue
                if name == "versions":
                    self._boards.load(document)
                elif name == "key" and self.secret is None:
                    self.secret = bytes.fromhex(document["key"])
                elif name.startswith("documents-"):
                    self._documents.load(document, self.now())
            except (InputFault, KeyError, TypeError, ValueError):
                self.counters["unreadable"] += 1
        self.counters["torn"] += self.shelf.torn


def _file_of(kind: str, tenant: str) -> str:
    return "documents-" + sha256(f"{len(kind)}:{kind}{tenant}".encode(errors="surrogatepass")).hexdigest()[:32]
