"""What a store promises, whoever keeps it. One contract test runs over all that do (tests/store/test_contract.py).

Three kinds of calls. `now append take policy salt status unpin finish abandon leave` never wait. `publish roll_back
keep kept renew_salt` are on no request's way and may wait a second. The others ask whoever shares the store, and wait
for that at most the store's budget (20 ms); then the in-process store answers. An answer says which it was: `shared`.
No call raises for what is wrong with the store; only InputFault comes, for arguments that cannot be meant. Times are
seconds on the store's clock, `now()`, never on a replica's own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from kvpolicy.faults import InputFault
from kvpolicy.store.record import Record

BUDGET_S = 0.020  # no decision waits longer for a store
DAY_S = 86400.0
LONGEST_S = 30 * DAY_S  # how long policies and documents stay without being renewed
SHARED, LOCAL = "shared", "local"


def lasting(ttl: float) -> float:
    """A time to live as it is kept: at most 30 days. Raises InputFault for none."""
    if isinstance(ttl, bool) or not isinstance(ttl, int | float) or not 0.0 < ttl < math.inf:
        raise InputFault(f"a time to live is a number of seconds above 0, not {ttl!r}")
    return min(float(ttl), LONGEST_S)


def named(what: str, value: str) -> str:
    """A name as it is kept. Raises InputFault for what is none."""
    if not isinstance(value, str) or not 0 < len(value) <= 1024:
        raise InputFault(f"{what} is a text of 1 to 1024 characters, not {value!r:.80}")
    return value


@dataclass(frozen=True, slots=True)
class Gap:
    """Records of one shard that this replica will never see: trimmed while it was away, or lost with a server.

    lost: how many were trimmed; None: the server lost the stream or its end, and with it what others told in the last
    moments before. The records after it follow.
    """

    shard: int
    lost: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a set of files. `serial` grows with every change of what is in force, a roll-back included;
    `number` names the content."""

    name: str
    serial: int
    number: int
    files: Mapping[str, str]
    at: float


@dataclass(frozen=True, slots=True)
class Published:
    """The answer to a change of version. Not accepted: `reason` says why, `version` is what stays in force."""

    accepted: bool
    version: Version | None
    shared: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Document:
    """What one source keeps of one kind: JSON. `at`: when it was kept."""

    source: str
    at: float
    body: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Pin:
    """Where a session is. `fresh`: this call put it there."""

    worker: str
    fresh: bool
    shared: bool


@dataclass(frozen=True, slots=True)
class Begun:
    """Whether a request is the first with its key. If not: `result` is what the first one left, None while it runs."""

    first: bool
    result: str | None
    shared: bool


@dataclass(frozen=True, slots=True)
class Spent:
    """Whether an amount was granted; `used`: the amount counted in the window, this one included where granted."""

    granted: bool
    used: float
    shared: bool


@dataclass(frozen=True, slots=True)
class Entered:
    """Whether a place was granted; `inside`: how many are taken."""

    granted: bool
    inside: int
    shared: bool


@dataclass(frozen=True, slots=True)
class Salt:
    """A cache salt, 64 hexadecimal digits. `lasting` False: the key is not known, so this one is for one request."""

    text: str
    lasting: bool


@dataclass(frozen=True, slots=True)
class Status:
    """How the store is. mode: SHARED or LOCAL; reason: why it is local. counters: what has happened so far."""

    mode: str
    reason: str = ""
    replicas: int = 1
    counters: Mapping[str, int] = field(default_factory=dict)


class Store(Protocol):
    """What replicas of a decision service share. Every text names something within its tenant.

    shards: streams that records go through; records of one run go through one (see `record.shard_of`).
    """

    shards: int

    @property
    def replicas(self) -> int:
        """How many share the store, as last seen; 1 without others."""

    def now(self) -> float:
        """Seconds since 1970 on the store's clock; it never goes back."""

    def status(self) -> Status:
        """Where answers come from now, and counts."""

    def close(self) -> None:
        """Write what waits to be written, as far as the budget allows, and stop. Idempotent."""

    # --- records ------------------------------------------------------------------------------------------

    def append(self, record: Record) -> None:
        """Tell everybody, this replica included. Records of one run keep their order; two with one key count once."""

    def take(self, limit: int = 1000) -> list[Record | Gap]:
        """What has arrived since the last call, own records included. Each record comes once."""

    def settle(self, budget: float | None = None) -> bool:
        """Wait until `take` has all that was appended here before. False: what others say of it is not known, `take`
        has it nevertheless."""

    # --- versions -----------------------------------------------------------------------------------------

    def publish(self, name: str, files: Mapping[str, str], expect: int | None = None) -> Published:
        """Put files in force, all or nothing. `expect`: only if this is the serial in force (0: none is)."""

    def roll_back(self, name: str, to: int | None = None) -> Published:
        """Put an earlier number back in force; None: the one before the present one."""

    def policy(self, name: str) -> Version | None:
        """What is in force, as last heard: watch its serial."""

    # --- documents ----------------------------------------------------------------------------------------

    def keep(self, kind: str, tenant: str, source: str, body: Mapping[str, object], ttl: float = LONGEST_S) -> bool:
        """Keep a JSON document in place of the one this source had. True: it is kept where it outlives the process."""

    def kept(self, kind: str, tenant: str) -> tuple[Document, ...]:
        """The documents of all sources, the newest first."""

    # --- sessions, requests, quotas, salts ------------------------------------------------------------------

    def pin(self, tenant: str, session: str, worker: str, ttl: float, move: bool = False) -> Pin:
        """Put a session on a worker unless it is on one; its time begins anew. `move`: in any case."""

    def pinned(self, tenant: str, session: str) -> Pin | None:
        """Where a session is; asking renews nothing."""

    def unpin(self, tenant: str, session: str) -> None:
        """The session may go anywhere. Idempotent."""

    def begin(self, tenant: str, key: str, ttl: float) -> Begun:
        """A request with an idempotency key begins; if it neither finishes nor is abandoned, the key ends by `ttl`."""

    def finish(self, tenant: str, key: str, result: str, ttl: float) -> None:
        """It is done; a retry within `ttl` gets `result` (at most 16 KiB, and no prompt text)."""

    def abandon(self, tenant: str, key: str) -> None:
        """It is over without a result: the next one with its key is the first."""

    def spend(self, tenant: str, what: str, amount: float, limit: float, window: float) -> Spent:
        """Count an amount if no more than `limit` are counted within a sliding `window` of seconds."""

    def enter(self, tenant: str, what: str, holder: str, limit: int, ttl: float) -> Entered:
        """Take one of `limit` places for at most `ttl`, or renew the one that `holder` has."""

    def leave(self, tenant: str, what: str, holder: str) -> None:
        """Give the place back. Idempotent."""

    def salt(self, tenant: str) -> Salt:
        """The tenant's cache salt: a keyed hash of its name, the same for all replicas."""

    def renew_salt(self, tenant: str) -> bool:
        """From now on the tenant has another salt, so nothing that was cached under the old one is hit again."""
