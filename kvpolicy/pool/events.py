"""What an engine tells of its cache, in vLLM's words: `BlockStored`, `BlockRemoved`, `AllBlocksCleared`.

The pool appends them to `Pool.events` where that is a list (off by default, for speed); whoever reads them drains
the list. One event covers the blocks of one step, in the order in which it happened to them.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvpolicy.pool.run import BlockHash


@dataclass(frozen=True, slots=True)
class BlockStored:
    """`hashes` are now in `medium` (GPU, CPU or DISK). parent: the hash of the block before them, None at the head."""

    hashes: tuple[BlockHash, ...]
    parent: BlockHash | None
    block_size: int
    medium: str = "GPU"


@dataclass(frozen=True, slots=True)
class BlockRemoved:
    """`hashes` are no longer in `medium`; another medium may still have them."""

    hashes: tuple[BlockHash, ...]
    medium: str = "GPU"


@dataclass(frozen=True, slots=True)
class AllBlocksCleared:
    """Nothing is cached any more."""


Event = BlockStored | BlockRemoved | AllBlocksCleared
