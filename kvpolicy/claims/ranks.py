"""What a pool offers to the claims side, and what it tells it: protocols only.

The ledger puts marks into the pool; the pool ranks every block by the strongest mark at or behind it. `kvpolicy.pool`
fulfils `Ranks`; the tests' naive list-per-block pool does too.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Protocol


class Mark(Protocol):
    """An entry at the block where a prefix of `length` blocks ends."""

    claim: object  # whoever placed it
    strength: int | None  # as last marked or weighed
    ceiling: int  # level of the highest tier it wants, 0 for the first one
    admit: bool  # whether its blocks may be stored below the first tier
    notify: bool  # whether the listener hears of releases of this mark's block

    @property
    def length(self) -> int:
        """What is left of the prefix, in blocks. Eviction shortens it, nothing makes it grow; 0: gone."""
        ...


class Lease(Protocol):
    """The blocks that a running request holds."""

    @property
    def length(self) -> int:
        """Leading blocks that are resident and held."""
        ...


class Ranks(Protocol):
    """The ranking face of a pool. All changes with the same `now` are one instant; `now` never goes back."""

    @property
    def capacity(self) -> int:
        """Blocks of the first tier."""
        ...

    @property
    def protected_blocks(self) -> int:
        """Distinct blocks whose strongest mark is protected."""
        ...

    def mark(
        self, at: Lease | Mark | Sequence[Hashable], length: int, strength: int | None, claim: object, now: float
    ) -> Mark:
        """Put a mark at the end of the leading `length` blocks (clipped to what is resident) of a lease's prompt, of
        another mark's prefix, or of a prompt given by its block hashes. strength None: an anchor without weight."""
        ...

    def weigh(self, mark: Mark, strength: int | None, now: float) -> None:
        """Change a mark's strength."""
        ...

    def unmark(self, mark: Mark, now: float) -> None:
        """Take a mark away; one that is gone already does nothing."""
        ...

    @property
    def movements(self) -> int:
        """Blocks moved between tiers so far."""
        ...

    def on_first_tier(self, mark: Mark, length: int) -> int:
        """How many of the leading `length` blocks of the mark's prefix are on the first tier."""
        ...

    def protectors(self, mark: Mark) -> tuple[Hashable, int]:
        """The place where a mark's prefix ends, and how many protect the block there: marks at that place, and ways on
        from it with any behind."""
        ...

    def way(self, mark: Mark) -> Iterable[Hashable]:
        """The places (see `protectors`) on the way to where a mark's prefix ends, that one included."""
        ...

    def last_release(self, mark: Mark, length: int | None = None) -> float | None:
        """When the block that ends the mark's prefix (its leading `length` blocks where given) was released last;
        None while a request holds it. Seconds."""
        ...


class Tally(Protocol):
    """Distinct blocks of one tier under some prefixes together."""

    def add(self, mark: Mark, length: int) -> int:
        """Count the leading `length` blocks of a mark's prefix as far as there is room. Returns how many are."""
        ...


class Tiers(Ranks, Protocol):
    """A pool with tiers below the first."""

    def demote(self, mark: Mark, tier: str, now: float) -> int:
        """Move the mark's prefix down to `tier` as far as no other mark wants it higher. Blocks moved."""
        ...

    def tally(self, tier: str, room: int) -> Tally:
        """A count of distinct blocks of a tier, up to `room` of them, valid until the next change."""
        ...

    def prefetch(self, mark: Mark, now: float, tier: str = "gpu") -> int:
        """Bring the mark's prefix up to `tier` as far as no higher rank has to leave. Blocks moved."""
        ...


class Listener(Protocol):
    """What the pool tells. Neither call may change marks while it is being made."""

    def released(self, mark: Mark, now: float) -> None:
        """A request let go of the block of a mark with `notify` set."""
        ...

    def emptied(self, mark: Mark, now: float) -> None:
        """The last block of the mark's prefix has gone; its length is 0."""
        ...
