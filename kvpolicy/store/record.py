"""A record: one thing that happened to one owner, as replicas tell it each other.

Made from requests, answers and events by `replica`; it carries what a run state needs and nothing else: no text, no
tokens, no hashes. Bytes of a record are JSON; what is read is checked, for others may write to the same server.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from zlib import crc32

from kvpolicy.faults import InputFault
from kvpolicy.request import Owner

KINDS = ("event", "request", "touched", "answer", "cancel", "claim", "release")
LARGEST_B = 8192
LONGEST_TEXT = 512  # characters: a name is shorter, a prompt is not
_MOST = 64  # fields, or parts of a list
_OWNER = ("tenant", "session", "run", "agent", "branch", "parent")


@dataclass(frozen=True, slots=True)
class Record:
    """`at`: seconds on the store's clock, None: when it is appended. kind: of KINDS. `body`: scalars and lists of
    scalars, `key`: the idempotency key (made where there is none)."""

    kind: str
    owner: Owner
    body: Mapping[str, object] = field(default_factory=dict)
    at: float | None = None
    key: str | None = None

    def timed(self, at: float, key: str) -> Record:
        """The record with what it lacks of a time and a key."""
        return replace(self, at=at if self.at is None else self.at, key=self.key or key)


def check(record: Record) -> Record:
    """Refuse a record that cannot be meant or that carries what no store should hold. Raises InputFault."""
    if record.kind not in KINDS:
        raise InputFault(f"'{record.kind}' is no kind of record; there are {', '.join(KINDS)}")
    if record.at is not None and not (math.isfinite(record.at) and 0 <= record.at < 1e12):
        raise InputFault(f"a record's time is in seconds on the store's clock, not {record.at!r}")
    if not isinstance(record.owner.tenant, str) or not record.owner.tenant:
        raise InputFault("a record needs its owner's tenant")
    for name in _OWNER:
        _check_value(name, getattr(record.owner, name))
    _check_value("key", record.key)
    if len(record.body) > _MOST:
        raise InputFault(f"a record of {len(record.body)} fields; at most {_MOST} are taken")
    for name, value in record.body.items():
        if not isinstance(name, str):
            raise InputFault(f"a record's fields have names, not {name!r}")
        _check_value(name, value)
    return record


def _check_value(name: str, value: object, depth: int = 0) -> None:
    if isinstance(value, str):
        if len(value) > LONGEST_TEXT:
            raise InputFault(f"{name} has {len(value)} characters; at most {LONGEST_TEXT} are kept, for names only")
    elif isinstance(value, list | tuple) and depth < 2:
        if len(value) > _MOST:
            raise InputFault(f"{name} has {len(value)} parts; at most {_MOST} are kept")
        for part in value:
            _check_value(name, part, depth + 1)
    elif value is not None and not isinstance(value, bool | int | float):
        raise InputFault(f"{name} is a {type(value).__name__}; a record holds names, numbers and lists of them")


def encode(record: Record) -> bytes:
    """The record as bytes. Raises InputFault for one that is too large or no JSON."""
    import orjson

    owner = record.owner
    row = {
        "k": record.kind,
        "a": record.at,
        "i": record.key,
        "o": [owner.tenant, owner.session, owner.run, owner.agent, owner.branch, owner.parent],
        "b": record.body,
    }
    try:
        data = orjson.dumps(row)
    except TypeError as fault:
        raise InputFault(f"a record that is no JSON: {fault}") from None
    if len(data) > LARGEST_B:
        raise InputFault(f"a record of {len(data)} bytes; at most {LARGEST_B} are taken")
    return data


def decode(data: bytes) -> Record | None:
    """The record that these bytes are; None where they are none, for nobody's bytes may stop a replica."""
    import orjson

    try:
        row: Any = orjson.loads(data)
        record = Record(row["k"], Owner(*row["o"]), row["b"], row["a"], row["i"])
        if record.at is None or not isinstance(record.key, str) or not isinstance(record.body, dict):
            return None
        return check(record)
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError, InputFault):
        return None


def shard_of(owner: Owner, shards: int) -> int:
    """Which stream an owner's records go through: all of one run, or of one session without a run, through one."""
    within = owner.run if owner.run is not None else owner.session
    if shards == 1 or within is None:
        return 0
    return crc32(f"{len(owner.tenant)}:{owner.tenant}{within}".encode(errors="replace")) % shards
