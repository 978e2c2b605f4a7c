"""How long the simulated server takes: constants of a step, not of any real GPU.

A prompt waits for its turn, then for its uncached tokens; an answer comes token by token. Hits make it faster, as on
the real thing, because they are not prefilled. Read by `server`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Speed:
    """Seconds. overhead: of any request. prefill: of one uncached prompt token, one prompt at a time. decode: of one
    output token. load: of one token that comes up from a lower tier."""

    overhead: float = 0.002
    prefill: float = 0.00002
    decode: float = 0.005
    load: float = 0.000002

    def first(self, uncached: int, loaded: int) -> float:
        """The time in the prefill lane, until the first token is there."""
        return self.overhead + uncached * self.prefill + loaded * self.load


STILL = Speed(0.0, 0.0, 0.0, 0.0)
