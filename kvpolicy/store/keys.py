"""The names of the store's keys in Redis, their hash tags and how long they live.

Every key starts with the prefix. What one script touches has one hash tag (the part in braces), so that it lies in one
slot of a cluster. Names that come from outside enter as keyed hashes: of one length, without braces, told by nobody.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import blake2b

from kvpolicy.faults import InputFault
from kvpolicy.store.contract import DAY_S, LONGEST_S

STREAM_S = DAY_S  # a stream that nobody writes to
BOARD_S = LONGEST_S  # renewed by every replica that is up
LIVE_S = 10.0  # a replica that says nothing for so long is gone
HEARTBEAT_S = 2.0


@dataclass(frozen=True, slots=True)
class Keys:
    """prefix: letters, digits and `.:_-`, its own for each installation; shards: streams, the same for all replicas."""

    prefix: str = "kvp"
    shards: int = 1

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9.:_-]{1,64}", self.prefix):
            raise InputFault(f"a key prefix is 1 to 64 letters, digits, '.', ':', '_' or '-', not {self.prefix!r}")
        if not 1 <= self.shards <= 64:
            raise InputFault(f"between 1 and 64 shards, not {self.shards}")

    def stream(self, shard: int) -> tuple[str, str]:
        """The records of a shard, and their keys."""
        tag = f"{self.prefix}:{{{self.prefix}.e{shard}}}"
        return f"{tag}:records", f"{tag}:seen"

    def board(self, name: str) -> tuple[str, str]:
        """All serials, and the versions of one name."""
        return self._board("serials"), self._board("v:" + self.hashed("version", name))

    def hello(self) -> tuple[str, str, str]:
        """All serials, the replicas that are up, and the key of the salts."""
        return self._board("serials"), self._board("live"), self._board("key")

    def of(self, tenant: str, what: str, *names: str) -> str:
        """A key of one tenant: `what` tells its kind."""
        whose = self.hashed("tenant", tenant)
        return f"{self.prefix}:{{{self.prefix}.{whose}}}:{what}" + (":" + self.hashed(what, *names) if names else "")

    def hashed(self, what: str, *names: str) -> str:
        """Names as 24 hexadecimal digits; no two lists of names are alike."""
        digest = blake2b(person=b"kvpolicy key", digest_size=12, key=self.prefix.encode())
        for name in (what, *names):
            data = name.encode(errors="surrogatepass")
            digest.update(len(data).to_bytes(8, "big") + data)
        return digest.hexdigest()

    def _board(self, name: str) -> str:
        return f"{self.prefix}:{{{self.prefix}.b}}:{name}"
