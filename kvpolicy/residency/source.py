"""One rank of one worker, as its numbered events tell it: what it holds, and whether that is the whole truth.

Fed by `index`. Events are numbered without gaps per rank and incarnation. `base` is what holds after the event
numbered `last`; what came after a gap waits in `pending` until the gap is filled, so nothing is applied out of turn
and a late event cannot bring back what a later one removed.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from kvpolicy.residency.events import KvEvent
from kvpolicy.residency.holdings import Holdings

LIVE, STALE, NO_EVENTS = "live", "stale", "no_events"
PRESENT, ABSENT, UNKNOWN = "present", "absent", "unknown"
MOST_PENDING = 100_000  # events kept behind a gap; beyond that everything has to be replayed
REMEMBERED = 4096  # digests of the newest applied events, by which a second delivery is known
FIRST = 64  # and of the first ones, by which a new life is known


@dataclass(frozen=True, slots=True)
class Taken:
    """What became of an event: accepted, deferred (behind a gap), ignored; with the reason."""

    status: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class BlockRow:
    """state: present, absent or unknown. tiers: media that have it, highest first. copies: physical ones."""

    block: Hashable
    state: str
    tiers: tuple[str, ...] = ()
    copies: int = 0


class Source:
    """incarnation: the engine's own word for its life, None where it tells none; then a restart is told from event 0
    coming again with other content. last: number of the last event applied, -1 for none. seen: the highest received."""

    def __init__(self, reannounces: bool = False, incarnation: str | None = None) -> None:
        self.reannounces = reannounces
        self.incarnation = incarnation
        self.base = Holdings(reannounces)
        self.last = -1
        self.seen = -1
        self.heard_at: float | None = None
        self._pending: dict[int, KvEvent] = {}
        self._digests: dict[int, int] = {}
        self._former: int | None = None  # highest number of the life before, where the restart was only inferred
        self._doubt = False  # a frame came that may be of another life, or a second delivery of this one's
        self._after_gap: Holdings | None = None

    @property
    def stale(self) -> bool:
        """Whether it is not known to hold all that it was told: from a gap to its filling, and before event 0."""
        return self.last < 0 or self.last < self.seen or self._doubt

    @property
    def replay_from(self) -> int | None:
        """The first event that is missing; None when nothing is."""
        return self.last + 1 if self.stale else None

    def take(self, sequence: int, event: KvEvent, now: float) -> Taken:
        """An event of this life. Replayed ones fill gaps and are no news otherwise."""
        self.heard_at = now
        self._after_gap = None
        if sequence <= self.last:
            if event.replayed or self.incarnation is not None:
                return Taken("ignored", "this event was applied before, or a later one made it void")
            return self._again(sequence, event)
        if sequence == self.last + 1:
            if not event.replayed:
                self._doubt = False
            self._apply(sequence, event)
            self._drain()
            return Taken("accepted")
        if event.clears_all and self._former is None:
            # INVARIANT: after a clearing everything before it is known to be void, seen or not.
            self._pending = {n: e for n, e in self._pending.items() if n > sequence}
            self._apply(sequence, event)
            self._doubt = False
            self._drain()
            return Taken("accepted")
        return self._wait(sequence, event)

    def restart(self, incarnation: str | None) -> None:
        """A new life: the blocks of the old one are gone."""
        self.incarnation = incarnation
        self._begin()
        self._former = None

    def doubt(self) -> None:
        """What was told last may be missing, or the engine may have restarted: whoever listens lost it for a while."""
        self._doubt = True
        self._after_gap = None

    def confirm(self) -> None:
        """The engine was asked, and has told nothing in this life that is not known."""
        if self.last == self.seen:
            self._doubt = False
            self._after_gap = None

    def row(self, block: Hashable, groups: Sequence[int] = ()) -> BlockRow:
        """What is known of a block. INVARIANT: in doubt it is unknown, never present."""
        known = self.base
        if self.stale:
            known = self._sure()
            if not known.has(block, groups):
                return BlockRow(block, UNKNOWN)
        if not known.has(block, groups):
            return BlockRow(block, ABSENT)
        return BlockRow(block, PRESENT, tuple(known.tiers(block)), known.count(block))

    def present(self) -> list[Hashable]:
        """The blocks known to be there."""
        return list((self._sure() if self.stale else self.base).copies)

    def named(self, key: bytes) -> Hashable | None:
        """The engine's hash of a block known by its tokens."""
        found = self._sure().by_tokens.get(key) if self.stale else None
        return self.base.by_tokens.get(key) if found is None else found

    # --- inside -------------------------------------------------------------------------------------------

    def _apply(self, sequence: int, event: KvEvent) -> None:
        self.base.apply(event)
        self.last = sequence
        self.seen = max(self.seen, sequence)
        if self.incarnation is None:
            self._digests[sequence] = event.content
            if sequence >= REMEMBERED + FIRST:
                self._digests.pop(sequence - REMEMBERED, None)

    def _drain(self) -> None:
        while (event := self._pending.pop(self.last + 1, None)) is not None:
            self._apply(self.last + 1, event)

    def _wait(self, sequence: int, event: KvEvent) -> Taken:
        if self._former is not None:
            # The restart was inferred, so a frame behind a gap may be a late one of the life before: not kept.
            if sequence <= self._former + 1:
                self._doubt = True
                return Taken("ignored", "this event may be of the life before the restart")
            self.seen = max(self.seen, sequence)
            return Taken("ignored", f"events from {self.last + 1} on are missing")
        self.seen = max(self.seen, sequence)
        self._pending[sequence] = event
        if len(self._pending) > MOST_PENDING:
            self._pending.clear()
        return Taken("deferred", f"events from {self.last + 1} on are missing")

    def _again(self, sequence: int, event: KvEvent) -> Taken:
        """A number that was there before, and nobody says of which life: a second delivery, or a restart."""
        known = self._digests.get(sequence)
        if known is None or known == event.content:
            self._doubt = self._doubt or sequence < self.last
            return Taken("ignored", "this event was applied before, or the engine has restarted")
        former = max(self.seen, self._former or -1)
        self._begin()
        self._former = former
        if sequence == 0:
            self._apply(0, event)
            return Taken("accepted", "event 0 came again with other content: the engine has restarted")
        self.seen = sequence
        return Taken("ignored", "an old number came with other content: everything has to be replayed")

    def _begin(self) -> None:
        self.base = Holdings(self.reannounces)
        self.last = self.seen = -1
        self._pending.clear()
        self._digests.clear()
        self._doubt = False
        self._after_gap = None

    def _sure(self) -> Holdings:
        """What is there for certain although something is missing: stored after the last gap, and not removed since.

        Where the newest events join on to `base` only doubt makes this stale, and then nothing is certain, but for a
        life that began just now.
        """
        if self._after_gap is None:
            self._after_gap = Holdings(self.reannounces)
            first = max(self._pending, default=0)
            if self._pending and first == self.seen:
                while first - 1 in self._pending:
                    first -= 1
                for sequence in range(first, self.seen + 1):
                    self._after_gap.apply(self._pending[sequence])
        return self._after_gap


__all__ = ["ABSENT", "LIVE", "NO_EVENTS", "PRESENT", "STALE", "UNKNOWN", "BlockRow", "Source", "Taken"]
