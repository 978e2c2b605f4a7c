"""One event of an engine's KV cache, in one form for all engines: stored, removed or cleared.

Made from a JSON row (`event_from_row`) or from the embedded engine's own events (`event_of_pool`); read by `source`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from kvpolicy import words
from kvpolicy.faults import InputFault
from kvpolicy.pool import events as pool_events

STORED, REMOVED, CLEARED = "stored", "removed", "cleared"
BATCH = "batch"
LIVE_FEED, REPLAY_FEED = "live", "replay"
_KEYS = frozenset(
    {"type", "hashes", "parent", "medium", "block_size", "tokens", "group", "via", "incarnation", "lora", "extra"}
)
_MEDIA = {**words.TIER_ALIASES, "storage": "disk"}


@dataclass(frozen=True, slots=True)
class KvEvent:
    """hashes: the engine's names of the blocks, head first. parent: the block before them, None at the head. medium:
    the tier they are in (None in `cleared`: all of them). tokens: of the blocks, where the engine tells them. group:
    the KV-cache group of a model that has several. replayed: it was asked for, and is no news. salt: of a prompt that
    begins here, where the engine tells one."""

    kind: str
    hashes: tuple[Hashable, ...] = ()
    parent: Hashable | None = None
    medium: str | None = "gpu"
    block_size: int | None = None
    tokens: tuple[int, ...] = ()
    group: int | None = None
    replayed: bool = False
    parts: tuple[KvEvent, ...] = ()
    salt: str | None = None

    @property
    def content(self) -> int:
        """A digest of what it says, however it came: the same for two deliveries of one event (in one process)."""
        parts = tuple(part.content for part in self.parts)
        return hash((self.kind, self.hashes, self.parent, self.medium, self.tokens, self.group, self.salt, parts))

    @property
    def clears_all(self) -> bool:
        """Whether nothing that was there before is there after it."""
        return (self.kind == CLEARED and self.medium is None) or any(part.clears_all for part in self.parts)


def event_from_row(row: object, name: str = "event") -> KvEvent:
    """The event of a JSON row `{"type": "stored", "hashes": […], …}`. Raises InputFault naming the key."""
    if not isinstance(row, Mapping):
        raise InputFault(f"{name}: a JSON object is needed")
    unknown = next((key for key in row if key not in _KEYS), None)
    if unknown is not None:
        raise InputFault(f"{name}: unknown key '{unknown}'; the keys are {', '.join(sorted(_KEYS))}")
    kind = row.get("type")
    if kind not in (STORED, REMOVED, CLEARED):
        raise InputFault(f"{name}: type: {kind!r} is no KV event; the types are {STORED}, {REMOVED}, {CLEARED}")
    hashes = row.get("hashes", [])
    if not isinstance(hashes, list) or not all(_is_hash(h) for h in hashes):
        raise InputFault(f"{name}: hashes: a list of block hashes (strings or whole numbers) is needed")
    if kind != CLEARED and "hashes" not in row:
        raise InputFault(f"{name}: hashes: missing; say which blocks were {kind}")
    parent = row.get("parent")
    if parent is not None and not _is_hash(parent):
        raise InputFault(f"{name}: parent: a block hash or null is needed")
    tokens = row.get("tokens") or []
    if not isinstance(tokens, list) or not all(_whole(t) for t in tokens):
        raise InputFault(f"{name}: tokens: a list of whole numbers is needed")
    for key in ("block_size", "group"):
        if row.get(key) is not None and not _whole(row[key]):
            raise InputFault(f"{name}: {key}: a whole number is needed")
    via = row.get("via", LIVE_FEED)
    if via not in (LIVE_FEED, REPLAY_FEED):
        raise InputFault(f"{name}: via: {LIVE_FEED} or {REPLAY_FEED} is needed, not {via!r}")
    medium = row.get("medium", None if kind == CLEARED else "gpu")
    if medium is not None and not isinstance(medium, str):
        raise InputFault(f"{name}: medium: a name such as GPU or CPU is needed")
    plain = not row.get("lora") and not row.get("extra")  # else the tokens alone do not name the blocks
    return KvEvent(
        kind,
        tuple(hashes),
        parent,
        None if medium is None else tier_of(medium),
        row.get("block_size"),
        tuple(tokens) if plain else (),
        row.get("group"),
        via == REPLAY_FEED,
    )


def event_of_pool(event: pool_events.Event) -> KvEvent:
    """The embedded engine's own event."""
    if isinstance(event, pool_events.AllBlocksCleared):
        return KvEvent(CLEARED, medium=None)
    if isinstance(event, pool_events.BlockStored):
        return KvEvent(STORED, event.hashes, event.parent, tier_of(event.medium), event.block_size)
    return KvEvent(REMOVED, event.hashes, medium=tier_of(event.medium))


def tier_of(medium: str) -> str:
    """The language's name of a medium: GPU, CPU, STORAGE, hbm, …"""
    lower = medium.lower()
    return _MEDIA.get(lower, lower)


def _is_hash(value: object) -> bool:
    return isinstance(value, str) or _whole(value)


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
