"""The simulated server's blocks: the embedded pool, requests by id, and what happened to blocks as numbered events.

Fulfils `generation.Cache`. Without directives nothing of claims runs, and the pool is LRU alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from kvpolicy.pool import Lease, Pool
from kvpolicy.pool.events import BlockRemoved, BlockStored, Event
from kvpolicy.simulated.generation import Call

EVENTS_KEPT = 10_000


def name_of(block: object) -> str:
    """A block hash as text."""
    return block.hex() if isinstance(block, bytes) else str(block)


def event_row(event: Event) -> dict[str, Any]:
    """An event as a JSON row."""
    if isinstance(event, BlockStored):
        parent = None if event.parent is None else name_of(event.parent)
        hashes = [name_of(block) for block in event.hashes]
        return {
            "type": "stored",
            "hashes": hashes,
            "parent": parent,
            "block_size": event.block_size,
            "medium": event.medium,
        }
    if isinstance(event, BlockRemoved):
        return {"type": "removed", "hashes": [name_of(block) for block in event.hashes], "medium": event.medium}
    return {"type": "cleared"}


class Blocks:
    """blocks, cpu_blocks: sizes of the tiers, in blocks; block_size in tokens. numbered: (sequence, events) of the
    last steps, oldest first, for a reader that missed some."""

    def __init__(self, blocks: int, block_size: int, cpu_blocks: int = 0) -> None:
        self.pool = Pool(blocks, block_size=block_size, cpu_blocks=cpu_blocks, events=True)
        self.leases: dict[str, Lease] = {}
        self.numbered: deque[tuple[int, tuple[Event, ...]]] = deque(maxlen=EVENTS_KEPT)
        self.sequence = 0

    @property
    def capacity(self) -> int:
        """Blocks of the first tier."""
        return self.pool.capacity

    @property
    def available(self) -> int:
        """Blocks that no running request holds."""
        return self.pool.available

    def start(self, call: Call, hashes: Sequence[bytes], now: float) -> tuple[int, int]:
        """A request's prompt is looked up and stored. Returns blocks found, and those of them on lower tiers."""
        lease = self.pool.acquire(hashes, now)
        self.leases[call.id] = lease
        self.pool.private(lease, 1, now)  # the block being filled
        self._tell()
        return lease.hits, sum(lease.hits_by_tier[1:])

    def grow(self, call: Call, hashes: Sequence[bytes], now: float) -> None:
        """More full blocks behind all it had."""
        lease = self.leases[call.id]
        self.pool.extend(lease, hashes, now)
        self.pool.private(lease, 1, now)
        self._tell()

    def end(self, call: Call, now: float, *, cancelled: bool) -> None:
        """It lets go of its blocks."""
        self.pool.release(self.leases.pop(call.id), now)
        self._tell()

    def clear(self, now: float) -> bool:
        """Forget all that no running request holds. False while one runs."""
        done = not self.leases and self.pool.clear(now)
        self._tell()
        return done

    def since(self, sequence: int) -> list[tuple[int, tuple[Event, ...]]]:
        """Events from that number on, as far as they are kept."""
        return [row for row in self.numbered if row[0] >= sequence]

    def rows(self, sequence: int) -> list[dict[str, Any]]:
        """Events from that number on as JSON rows, in the form of `kv_event` steps."""
        return [{"sequence": number, **event_row(event)} for number, events in self.since(sequence) for event in events]

    def look(self, most: int) -> dict[str, Any]:
        """Sizes, and the first blocks to leave: what `GET /sim/blocks` shows."""
        pool = self.pool
        return {
            "block_size": pool.block_size,
            "capacity": pool.capacity,
            "used": pool.used,
            "available": pool.available,
            "protected": pool.protected_blocks,
            "leaves_first": [name_of(block) for block in pool.eviction_order(most)],
        }

    def _tell(self) -> None:
        events = self.pool.events
        if events:
            self.numbered.append((self.sequence, tuple(events)))
            self.sequence += 1
            events.clear()
