"""All workers: which blocks each of their ranks holds, and how far that is to be believed.

Events, and the number of requests sent, come from whoever watches the engines; look-ups are answered block by block.
States: live; stale, from a gap until it is filled; no_events, for a worker that is configured and stays silent.
Times are seconds on the caller's clock.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from kvpolicy.faults import Notice
from kvpolicy.residency.events import KvEvent
from kvpolicy.residency.holdings import token_key
from kvpolicy.residency.source import LIVE, NO_EVENTS, STALE, UNKNOWN, BlockRow, Source, Taken

SILENT_S = 60.0


@dataclass(slots=True)
class WorkerSettings:
    """What is known of a worker beside its events. block_size: tokens a block, None until it tells. groups: KV-cache
    groups that all have to hold a block. reannounces: it tells blocks again that it told before. waiting_since: when
    it was configured, or was first sent a request after its last event; None while nothing is owed."""

    incarnation: str | None = None
    block_size: int | None = None
    groups: tuple[int, ...] = ()
    reannounces: bool = False
    configured: bool = False
    waiting_since: float | None = None
    former: dict[str, None] = field(default_factory=dict)

    def has_ended(self, incarnation: str) -> bool:
        """Whether that life is over. Numbered lives have an order, so that one never heard of is known to be over,
        too; other names are taken for new ones when they come for the first time."""
        if incarnation in self.former:
            return True
        now = self.incarnation
        return now is not None and now.isdecimal() and incarnation.isdecimal() and int(incarnation) < int(now)


class Residency:
    """The index. One `Source` for each worker and rank, made when it is first heard of."""

    def __init__(self) -> None:
        self.workers: dict[str, WorkerSettings] = {}
        self._sources: dict[str, dict[int, Source]] = {}

    def worker(
        self,
        name: str,
        now: float,
        *,
        incarnation: str | None = None,
        block_size: int | None = None,
        groups: Sequence[int] = (),
        reannounces: bool | None = None,
    ) -> None:
        """Configure a worker. Another incarnation than before is a restart: it ends the blocks of all its ranks."""
        known = self._known(name)
        if not known.configured:
            known.configured = True
            if not any(source.heard_at is not None for source in self._of(name).values()):
                known.waiting_since = now
        if block_size is not None:
            known.block_size = block_size
        if groups:
            known.groups = tuple(groups)
        if reannounces is not None and reannounces != known.reannounces:
            known.reannounces = reannounces
            for source in self._of(name).values():
                source.reannounces = source.base.reannounces = reannounces
        if incarnation is not None and incarnation != known.incarnation:
            self._incarnate(name, incarnation)
            known.waiting_since = now

    def sent(self, name: str, now: float, requests: int = 1) -> None:
        """Requests were sent to a worker: from now on it owes events."""
        known = self._known(name)
        if requests > 0 and known.waiting_since is None:
            known.waiting_since = now

    def take(
        self, name: str, rank: int, sequence: int, event: KvEvent, now: float, incarnation: str | None = None
    ) -> tuple[Taken, list[Notice]]:
        """An event of a rank. A life that has ended says nothing any more; a new one begins with an empty cache."""
        known = self._known(name)
        if incarnation is not None and known.has_ended(incarnation):
            return Taken("ignored", f"incarnation {incarnation} has ended"), []
        if incarnation is not None:
            self._incarnate(name, incarnation)
        notices = []
        # Groups of one model may have blocks of several sizes: the first group's is the worker's.
        for size in {part.block_size for part in event.parts or (event,) if not part.group} - {None}:
            if known.block_size is not None and known.block_size != size:
                notices.append(
                    Notice(
                        "BLOCK_SIZE_MISMATCH",
                        f"worker {name} stores blocks of {size} tokens, not of {known.block_size}; its own size counts",
                        {"worker": name, "told": size, "configured": known.block_size},
                    )
                )
            known.block_size = size
        known.waiting_since = None
        return self.source(name, rank).take(sequence, event, now), notices

    def state(self, name: str, rank: int, now: float) -> str:
        """live, stale or no_events."""
        known = self.workers.get(name)
        waiting = None if known is None or not known.configured else known.waiting_since
        if waiting is not None and now - waiting >= SILENT_S:
            return NO_EVENTS
        source = self._sources.get(name, {}).get(rank)
        return STALE if source is None or source.stale else LIVE

    def lookup(self, name: str, rank: int, blocks: Sequence[Hashable], now: float) -> list[BlockRow]:
        """What is known of each block. Renews nothing."""
        source = self._sources.get(name, {}).get(rank)
        if source is None or self.state(name, rank, now) == NO_EVENTS:
            return [BlockRow(block, UNKNOWN) for block in blocks]
        groups = self.workers[name].groups
        return [source.row(block, groups) for block in blocks]

    def blocks_of(self, name: str, rank: int, tokens: Sequence[int]) -> list[Hashable | None]:
        """The engine's hashes of a prompt's full blocks, by its own block size; None where it told of none."""
        known, source = self.workers.get(name), self._sources.get(name, {}).get(rank)
        size = None if known is None else known.block_size
        if source is None or not size:
            return []
        key, found = b"", []
        for at in range(0, len(tokens) - size + 1, size):
            key = token_key(key, tokens[at : at + size])
            found.append(source.named(key))
        return found

    def source(self, name: str, rank: int) -> Source:
        """The rank of a worker, made if it was not heard of before."""
        known = self._known(name)
        ranks = self._of(name)
        if rank not in ranks:
            ranks[rank] = Source(known.reannounces, known.incarnation)
        return ranks[rank]

    def row(self, name: str, rank: int, now: float) -> dict[str, object]:
        """A rank's state as JSON: `name rank state last_sequence replay_from blocks`."""
        source = self._sources.get(name, {}).get(rank)
        known = self.workers.get(name)
        return {
            "name": name,
            "rank": rank,
            "state": self.state(name, rank, now),
            "incarnation": None if known is None else known.incarnation,
            "last_sequence": None if source is None or source.last < 0 else source.last,
            "replay_from": 0 if source is None else source.replay_from,
            "blocks": 0 if source is None else len(source.present()),
        }

    def rows(self, now: float) -> list[dict[str, object]]:
        """The state of every rank that is known; a worker that has told nothing yet counts as its rank 0."""
        return [self.row(name, rank, now) for name in sorted(self.workers) for rank in self.ranks(name) or [0]]

    def ranks(self, name: str) -> list[int]:
        """The ranks of a worker that were heard of."""
        return sorted(self._sources.get(name, {}))

    # --- inside -------------------------------------------------------------------------------------------

    def _known(self, name: str) -> WorkerSettings:
        return self.workers.setdefault(name, WorkerSettings())

    def _of(self, name: str) -> dict[int, Source]:
        return self._sources.setdefault(name, {})

    def _incarnate(self, name: str, incarnation: str) -> None:
        known = self._known(name)
        if known.incarnation == incarnation:
            return
        if known.incarnation is not None:
            known.former[known.incarnation] = None
            if len(known.former) > 64:
                del known.former[next(iter(known.former))]
        fresh = known.incarnation is None
        known.incarnation = incarnation
        for source in self._of(name).values():
            if fresh and source.last < 0 and source.seen < 0:
                source.incarnation = incarnation
            else:
                source.restart(incarnation)
