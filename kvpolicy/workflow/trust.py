"""How much the classes of pauses are believed, against recency alone: by which of the two foretold returns better.

At each return both are asked how likely a return at just that age was, from what was known before it (prequential
scoring, Dawid, J. R. Stat. Soc. A 147, 1984). The classes' lead, in units of the natural logarithm and fading, is the
logarithm of the odds at which they are believed; they are until they prove wrong. Where what was learned is of other
traffic, by another clock, or told wrongly, it foretells worse than recency, and what is made of it becomes the order of
recency. Read by `pauses`.
"""

from __future__ import annotations

import math

from kvpolicy.workflow.hazard import RECENCY, Hazard, foretold

FADES = 0.98  # a return counts half as much 34 returns later
BEGINS = 8.0  # 3 of 10,000 for recency
_MOST = 3.0  # what one return may say, either way
MOST_LEAD = 1.01 * _MOST / (1.0 - FADES)  # more than returns without end add up to
_SURE = 30.0  # beyond, the other side counts for less than a step of a rank


class Trust:
    """lead: of the classes, as the logarithm of odds."""

    __slots__ = ("lead",)

    def __init__(self) -> None:
        self.lead = BEGINS

    def returned(self, hazard: Hazard, age: float) -> None:
        """A pause of this class has ended by a return at this age, seconds; its classes know nothing of it yet, nor
        that it was open."""
        lead = foretold(hazard.rates(), age) - foretold(RECENCY, age)
        self.lead = FADES * self.lead + max(-_MOST, min(_MOST, lead))

    @property
    def share(self) -> float:
        """How much the classes count, 0 to 1; recency counts for the rest."""
        return 1.0 / (1.0 + math.exp(-max(-_SURE, min(_SURE, self.lead))))
