"""The simulated server's blocks: the embedded pool, requests by id, claims on them, and what happened as events.

Fulfils `generation.Cache`. Every step goes through the pool first, then to `claims`; without directives nothing of
claims runs, and the pool is LRU alone. Events are numbered by step, kept for a while, and told to `publish`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kvpolicy.claims.ledger import BUDGET
from kvpolicy.claims.strength import PROTECTED
from kvpolicy.pool import Lease, Pool
from kvpolicy.pool.events import BlockRemoved, BlockStored, Event
from kvpolicy.simulated.claims import Claims
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
    """blocks, cpu_blocks: sizes of the tiers, in blocks; block_size in tokens; budget: the share of them that may be
    protected. numbered: (sequence, events) of the last steps, oldest first, for a reader that missed some. publish:
    told of every step's events, and the call whose step it was; None where it was none's."""

    def __init__(self, blocks: int, block_size: int, cpu_blocks: int = 0, budget: float = BUDGET) -> None:
        self.pool = Pool(blocks, block_size=block_size, cpu_blocks=cpu_blocks, events=True)
        self.claims = Claims(self.pool, budget)
        self.leases: dict[str, Lease] = {}
        self.numbered: deque[tuple[int, tuple[Event, ...]]] = deque(maxlen=EVENTS_KEPT)
        self.sequence = 0
        self.publish: Callable[[Sequence[Event], Call | None], None] | None = None

    @property
    def capacity(self) -> int:
        """Blocks of the first tier."""
        return self.pool.capacity

    @property
    def available(self) -> int:
        """Blocks that no running request holds."""
        return self.pool.available

    def came(self, call: Call, now: float) -> None:
        """A request was admitted and waits for its turn."""
        self.claims.came(call, now)

    def left(self, call: Call) -> None:
        """It gave up before its turn."""
        self.claims.left(call)

    def start(self, call: Call, now: float) -> tuple[int, int]:
        """A request's prompt is looked up and stored. Returns blocks found, and those of them on lower tiers."""
        self.claims.advance(now)
        lease = self.pool.acquire(call.hashes, now)
        self.leases[call.id] = lease
        self.pool.private(lease, 1, now)  # the block being filled
        self.claims.started(call, lease, now)
        self._tell(call)
        return lease.hits, sum(lease.hits_by_tier[1:])

    def grow(self, call: Call, hashes: Sequence[bytes], now: float) -> None:
        """More full blocks behind all it had."""
        lease = self.leases[call.id]
        self.claims.advance(now)
        self.pool.extend(lease, hashes, now)
        self.pool.private(lease, 1, now)
        call.hashes += hashes
        self.claims.grew(call, now)
        self._tell(call)

    def end(self, call: Call, now: float, *, cancelled: bool) -> None:
        """It lets go of its blocks."""
        self.claims.advance(now)
        self.pool.release(self.leases.pop(call.id), now)
        self.claims.ended(call, now, cancelled=cancelled)
        self._tell(call)

    def take_up(self, message: Mapping[str, Any], now: float) -> dict[str, Any]:
        """A message of the control channel, and its answer."""
        row = self.claims.take_up(message, now)
        self._tell(None)
        return row

    def clear(self, now: float) -> bool:
        """Forget all that no running request holds. False while one runs."""
        done = not self.leases and self.pool.clear(now)
        self.claims.advance(now)
        self._tell(None)
        return done

    def since(self, sequence: int) -> list[tuple[int, tuple[Event, ...]]]:
        """Events from that number on, as far as they are kept."""
        return [row for row in self.numbered if row[0] >= sequence]

    def rows(self, sequence: int) -> list[dict[str, Any]]:
        """Events from that number on as JSON rows, in the form of `kv_event` steps."""
        return [{"sequence": number, **event_row(event)} for number, events in self.since(sequence) for event in events]

    def look(self, most: int, now: float) -> dict[str, Any]:
        """Sizes, blocks with their ranks, and the first to leave: what `GET /sim/blocks` shows. Renews nothing."""
        pool = self.pool
        claims = self.claims.rows(now)
        blocks = []
        for block, view in pool.residents(most):
            rank = view.rank - PROTECTED if view.protected else view.rank
            row = {"hash": name_of(block), "rank": rank, "protected": view.protected, "dropped": view.dropped}
            blocks.append({**row, "tier": view.tier, "held_by": view.held, "claims": len(view.marks)})
        return {
            "simulated": True,
            "block_size": pool.block_size,
            "capacity": pool.capacity,
            "used": pool.used,
            "available": pool.available,
            "protected": pool.protected_blocks,
            "leaves_first": [name_of(block) for block in pool.eviction_order(most)],
            "blocks": blocks,
            "claims": claims[:most],
        }

    def _tell(self, call: Call | None) -> None:
        events = self.pool.events
        if not events:
            return
        for event in events:
            if isinstance(event, BlockStored):
                self.claims.stored(event.hashes)
            elif isinstance(event, BlockRemoved):
                self.claims.removed(event.hashes)
        told = tuple(events)
        events.clear()
        self.numbered.append((self.sequence, told))
        self.sequence += 1
        if self.publish is not None:
            self.publish(told, call)
