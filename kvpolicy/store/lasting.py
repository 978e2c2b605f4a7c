"""What must last, in-process and in files where there is a folder: versions, documents, the key of the salts.

Part of `memory`. A lock is held for the moment of a change; whoever writes a file holds another one first, so that a
slow disk holds up those who write and nobody who reads.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from hashlib import sha256

from kvpolicy.faults import InputFault
from kvpolicy.store import salts
from kvpolicy.store.boards import Boards, checked
from kvpolicy.store.contract import LONGEST_S, Document, Published, Salt, Version, lasting, named
from kvpolicy.store.documents import Documents
from kvpolicy.store.shelf import Shelf


class Lasting:
    """See `contract.Store` for the calls, `memory.MemoryStore` for the arguments."""

    def __init__(self, folder: str | os.PathLike[str] | None, clock: Callable[[], float], secret: bytes | None) -> None:
        if secret is not None and len(secret) < 16:
            raise InputFault("the secret of a store has at least 16 bytes")
        self.counters: Counter[str] = Counter()
        self.secret = secret
        self.shelf = None if folder is None else Shelf(folder)
        self._clock, self._latest = clock, 0.0
        self._lock = threading.Lock()
        self._files = threading.Lock()  # taken before the other
        self._boards, self._documents = Boards(), Documents()
        self._load()

    def now(self) -> float:
        """See `contract.Store`."""
        self._latest = max(self._latest, self._clock())
        return self._latest

    # --- versions -----------------------------------------------------------------------------------------

    def publish(self, name: str, files: Mapping[str, str], expect: int | None = None) -> Published:
        """See `contract.Store`."""
        files = checked(name, files)
        with self._files:
            with self._lock:
                answer = self._boards.publish(name, files, expect, self.now())
            return self._kept(answer)

    def roll_back(self, name: str, to: int | None = None) -> Published:
        """See `contract.Store`."""
        with self._files:
            with self._lock:
                answer = self._boards.roll_back(name, to)
            return self._kept(answer)

    def policy(self, name: str) -> Version | None:
        """See `contract.Store`."""
        return self._boards.current(name)

    def heard(self, version: Version, before: Version | None = None) -> None:
        """Others put this in force; `before` was, until then."""
        with self._files:
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
        with self._files:
            with self._lock:
                self._documents.put(kind, tenant, Document(source, now, body), now + lasting(ttl), now)
                document = self._documents.export(kind, tenant)
            return self._write(_file_of(kind, tenant), document)

    def kept(self, kind: str, tenant: str) -> tuple[Document, ...]:
        """See `contract.Store`."""
        with self._lock:
            return self._documents.all(kind, tenant, self.now())

    # --- salts --------------------------------------------------------------------------------------------

    def salt(self, tenant: str) -> Salt:
        """See `contract.Store`."""
        if self.secret is None:
            self.know_key(salts.mint_key(), instead=False)
        return salts.salt(self.secret, named("tenant", tenant), self.policy(salts.BOARD))

    def renew_salt(self, tenant: str) -> bool:
        """See `contract.Store`."""
        self.salt(tenant)
        files = salts.renewed(self.secret, tenant, self.policy(salts.BOARD))
        return self.publish(salts.BOARD, files).accepted

    def know_key(self, key: bytes, instead: bool = True) -> None:
        """This is the key of the salts from now on; `instead` False: only if there is none."""
        with self._files:
            if key != self.secret and (instead or self.secret is None):
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
