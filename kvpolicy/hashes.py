"""Block hashes of a token list, for requests that bring tokens and no hashes of an engine.

Where an engine tells its own hashes, those are used: nothing here imitates an engine's extra keys. A hash names a
block together with all blocks before it, and everything else that makes its KV differ: each extra key is hashed
with its own type and length, so that an adapter and a tenant's salt of equal text never share a block.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from hashlib import sha256
from sys import byteorder

from kvpolicy.faults import InputFault

_ROOT = sha256(b"kvpolicy block chain 1").digest()


def block_hashes(tokens: Sequence[int], block_size: int, extra: Mapping[str, object] | None = None) -> list[bytes]:
    """The 32-byte hashes of the full blocks of `tokens`, first to last.

    extra: {"lora": name, "model": name, "salt": text, "images": [{"start", "length", "digest"}]}; adapter and model
    enter every block, the salt the first (the chain carries it on), an image's whole digest each block it overlaps.
    Raises InputFault for a block size below 1, a token that is no 64-bit integer, and an image without a digest or
    a length: without them two different pictures would be one.
    """
    if block_size < 1:
        raise InputFault(f"block_size must be at least 1, not {block_size}")
    try:
        packed = array("q", tokens)
    except (TypeError, OverflowError):
        raise InputFault("tokens must be integers of at most 64 bits") from None
    if byteorder == "big":
        packed.byteswap()
    extra = extra or {}
    every = _key("lora", extra.get("lora")) + _key("model", extra.get("model"))
    first = _key("salt", extra.get("salt"))
    images = _images(extra.get("images"))
    data, parent, hashes = packed.tobytes(), _ROOT, []
    width = 8 * block_size
    for block in range(len(packed) // block_size):
        digest = sha256(parent)
        digest.update(data[block * width : (block + 1) * width])
        if every:
            digest.update(every)
        if first and block == 0:
            digest.update(first)
        if images:
            start, end = block * block_size, (block + 1) * block_size
            for at, until, key in images:
                if at < end and until > start:
                    digest.update(_key("offset", at - start) + key)
        parent = digest.digest()
        hashes.append(parent)
    return hashes


def _key(kind: str, value: object) -> bytes:
    """One extra key as typed bytes: kind, type of the value, length, value. Empty where there is none."""
    if value is None:
        return b""
    if not isinstance(value, str | int | bytes):
        raise InputFault(f"{kind} must be text or a number, not {type(value).__name__}")
    raw = value if isinstance(value, bytes) else str(value).encode()
    return f"{kind}:{type(value).__name__}:{len(raw)}:".encode() + raw


def _images(value: object) -> list[tuple[int, int, bytes]]:
    """(first token, token after the last, key) of every image, in prompt order."""
    if value is None:
        return []
    if not isinstance(value, Sequence):
        raise InputFault("images must be a list")
    found = []
    for index, image in enumerate(value):
        start, length, digest = (image.get(k) for k in ("start", "length", "digest"))
        if not isinstance(start, int) or not isinstance(length, int) or not digest:
            raise InputFault(f"image {index}: start, length (in expanded tokens) and the whole digest are needed")
        found.append((start, start + length, _key("image", digest)))
    return sorted(found)
