"""vLLM's KV events, from the bytes of a batch to `KvEvent`s, in every encoding that it has had.

A batch is a msgpack array `[ts, [event…], data_parallel_rank?]`. An event was an array that begins with its name up to
0.23, and is a map with its name under `type` since; fields were added over time and absent ones are normal, so both
forms are read by their names and what is not known is passed over. Hashes are whole numbers or bytes; bytes become
hex, so that every hash can be written as JSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kvpolicy.faults import InputFault
from kvpolicy.residency.events import BATCH, CLEARED, REMOVED, STORED, KvEvent, tier_of

_VOCABULARY = 2**31  # no model has as many tokens
# The order of the fields where an event is an array; later versions only added to the end.
_POSITIONS = {
    "BlockStored": (
        "block_hashes",
        "parent_block_hash",
        "token_ids",
        "block_size",
        "lora_id",
        "medium",
        "lora_name",
        "extra_keys",
        "group_idx",
        "kv_cache_spec_kind",
        "kv_cache_spec_sliding_window",
    ),
    "BlockRemoved": ("block_hashes", "medium", "group_idx"),
    "AllBlocksCleared": (),
}


@dataclass(frozen=True, slots=True)
class Batch:
    """at: when the engine published it, on its wall clock. rank: its data-parallel rank, None where it does not tell.
    event: all of it, as one event. unknown: events of kinds that are not known here."""

    at: float
    rank: int | None
    event: KvEvent
    unknown: int = 0


def decode(payload: bytes, *, replayed: bool = False) -> Batch:
    """The batch of a frame. Raises InputFault where the bytes are no such batch."""
    import msgspec

    try:
        row = msgspec.msgpack.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError, RecursionError) as fault:
        raise InputFault(f"KV events: no msgpack: {fault}") from fault
    if not isinstance(row, list) or len(row) < 2 or not isinstance(row[1], list) or not _real(row[0]):
        raise InputFault("KV events: a batch is [time, [event, …], rank]")
    rank = row[2] if len(row) > 2 and isinstance(row[2], int) else None
    parts, unknown = [], 0
    for event in row[1]:
        name, fields = _named(event)
        if name in _POSITIONS:
            parts.append(_event(name, fields, replayed))
        else:
            unknown += 1
    return Batch(float(row[0]), rank, KvEvent(BATCH, replayed=replayed, parts=tuple(parts)), unknown)


def _named(event: object) -> tuple[str, Mapping[str, Any]]:
    """The event's name, and its fields by name."""
    if isinstance(event, dict):
        return str(event.get("type")), event
    if isinstance(event, list) and event and isinstance(event[0], str):
        positions = _POSITIONS.get(event[0], ())
        return event[0], dict(zip(positions, event[1:], strict=False))
    raise InputFault("KV events: an event is an array that begins with its name, or a map with its name as type")


def _event(name: str, fields: Mapping[str, Any], replayed: bool) -> KvEvent:
    if name == "AllBlocksCleared":
        return KvEvent(CLEARED, medium=None, replayed=replayed)
    hashes = tuple(_hashes(fields.get("block_hashes")))
    medium = fields.get("medium")
    tier = tier_of(medium) if isinstance(medium, str) else "gpu"
    group = fields.get("group_idx")
    group = group if isinstance(group, int) else None
    if name == "BlockRemoved":
        return KvEvent(REMOVED, hashes, medium=tier, group=group, replayed=replayed)
    parent, size, tokens = fields.get("parent_block_hash"), fields.get("block_size"), fields.get("token_ids")
    extra = fields.get("extra_keys")
    salt = _salt(extra) if parent is None else None
    # With a LoRA or an image the tokens alone do not name a block; a salt stands at the first block only.
    plain = (
        fields.get("lora_id") is None
        and not fields.get("lora_name")
        and not (isinstance(extra, list) and any(extra[0 if salt is None else 1 :]))
        and isinstance(tokens, list)
        and all(isinstance(token, int) and 0 <= token < _VOCABULARY for token in tokens)
    )
    return KvEvent(
        STORED,
        hashes,
        None if parent is None else next(_hashes([parent])),
        tier,
        size if isinstance(size, int) and size > 0 else None,
        tuple(tokens) if plain and isinstance(tokens, list) else (),
        group,
        replayed,
        salt=salt if plain else None,
    )


def _salt(extra: object) -> str | None:
    """The cache salt among the extra keys of a prompt's first block, where that is all they are."""
    if not isinstance(extra, list) or not extra or not isinstance(extra[0], list | tuple):
        return None
    first = extra[0]
    return first[0] if len(first) == 1 and isinstance(first[0], str) else None


def _hashes(value: object) -> Iterator[int | str]:
    if not isinstance(value, list):
        raise InputFault("KV events: block_hashes: a list is needed")
    for item in value:
        if isinstance(item, bytes):
            yield item.hex()
        elif isinstance(item, int | str) and not isinstance(item, bool):
            yield item
        else:
            raise InputFault("KV events: block_hashes: whole numbers or bytes are needed")


def _real(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
