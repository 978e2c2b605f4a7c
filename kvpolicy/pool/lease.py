"""What a running request holds, and what a look at one block shows."""

from __future__ import annotations

from dataclasses import dataclass

from kvpolicy.pool.mark import Mark
from kvpolicy.pool.run import BlockHash, Run


class Lease:
    """The blocks that one running request holds.

    asked: full blocks asked for so far. hits: the leading blocks found resident when it was acquired. length:
    blocks resident and held now, less than `asked` only when everything else was held by running requests too
    (`short`): then the prompt keeps its head. stored, evicted: hashes, in the order in which it happened.
    hits_by_tier: the hits by the tier they were found in, GPU first. ready_at: when the last block brought up from a
    lower tier has arrived.
    """

    __slots__ = (
        "asked",
        "evicted",
        "hits",
        "hits_by_tier",
        "length",
        "private",
        "ready_at",
        "released",
        "run",
        "stored",
    )

    def __init__(self, run: Run, asked: int, now: float) -> None:
        self.run = run
        self.asked = asked
        self.hits = 0
        self.hits_by_tier: tuple[int, ...] = (0,)
        self.length = 0
        self.stored: list[BlockHash] = []
        self.evicted: list[BlockHash] = []
        self.private: list[int] = []
        self.ready_at = now
        self.released = False

    @property
    def short(self) -> bool:
        """Whether some blocks found no room. The request runs all the same; what is missing is not kept."""
        return self.length < self.asked


@dataclass(frozen=True, slots=True)
class BlockView:
    """One block. rank: its strength (`claims.strength`). held: by how many requests. marks: claims covering it."""

    rank: int
    protected: bool
    dropped: bool
    tier: str
    held: int
    marks: tuple[Mark, ...]
    block: int  # physical id in its tier
    state: str  # resident; loading (on its way to the GPU) or offloading (to a lower tier)
    last_release: float | None
