"""Names of blocks in KV events and messages: the low 64 bits of a hash as a number, or all of it as hex text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def number_of(block: object) -> int:
    """The number of a block's hash; 0 for a hash that is no bytes."""
    return int.from_bytes(block[-8:], "big") if isinstance(block, bytes) else 0


def blocks_named(names: Sequence[int | str], by_number: Mapping[int, bytes]) -> list[bytes]:
    """The hashes that are meant, up to the first number that `by_number` has not, or text that is no hex. Text is the
    hash itself, whether or not such a block is cached."""
    found = []
    for name in names:
        block = by_number.get(name) if isinstance(name, int) else _bytes(name)
        if block is None:
            break
        found.append(block)
    return found


def _bytes(text: str) -> bytes | None:
    try:
        return bytes.fromhex(text)
    except ValueError:
        return None
