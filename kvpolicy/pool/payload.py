"""What a physical block holds, and the proof that a hit gets what it asked for.

Every store writes the hash of the tokens into the physical block (`Tier.holds`), every hit in every tier reads it
back. Real engines trust their tables here; the embedded engine does not, so that a wrong table cannot pass for a
good hit ratio.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvpolicy.faults import KvpError
from kvpolicy.pool.run import BlockHash


class PayloadMismatch(KvpError):
    """A look-up led to a physical block that holds other tokens: a fault of the pool itself, never of its caller."""


def write(holds: list[BlockHash], ids: Sequence[int], hashes: Sequence[BlockHash]) -> None:
    """The physical blocks `ids` now hold `hashes`, one each."""
    for block, block_hash in zip(ids, hashes, strict=True):
        holds[block] = block_hash


def verify(holds: list[BlockHash], ids: list[int], hashes: list[BlockHash]) -> None:
    """Raises PayloadMismatch unless each of `ids` holds its hash."""
    if list(map(holds.__getitem__, ids)) == hashes:
        return
    for block, block_hash in zip(ids, hashes, strict=True):
        if holds[block] != block_hash:
            raise PayloadMismatch(f"block {block} was looked up for {block_hash!r} and holds {holds[block]!r}")
    raise PayloadMismatch(f"{len(ids)} physical blocks for {len(hashes)} hashes")
