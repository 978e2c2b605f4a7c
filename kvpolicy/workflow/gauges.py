"""Values that are measured outside and set here: pressure of tiers, waiting times, what tokens cost.

Whoever runs the pool or an engine sets them; `signals` reads them.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from kvpolicy.policy.model import Subject

_DELAYS_KEPT = 100  # requests whose waiting time counts as recent


@dataclass(frozen=True, slots=True)
class CostModel:
    """What a token costs to keep and to lose. None: unknown.

    bytes_per_token: KV bytes. prefill_tokens_per_s: tokens recomputed per second. reload_bytes_per_s: from the tier
    below.
    """

    bytes_per_token: float | None = None
    prefill_tokens_per_s: float | None = None
    reload_bytes_per_s: float | None = None


class Gauges:
    """Measured values that are set from outside: pressure, waiting times, costs, hits."""

    def __init__(self) -> None:
        self.pressure: Callable[[str], float] | None = None
        self.cost = CostModel()
        self._delays: deque[float] = deque(maxlen=_DELAYS_KEPT)

    def record_queue_delay(self, seconds: float) -> None:
        """How long a request waited whose blocks had been lost."""
        if 0.0 <= seconds < math.inf:
            self._delays.append(seconds)

    def queue_delay(self) -> float | None:
        """Mean of the latest 100 waiting times, seconds."""
        return math.fsum(self._delays) / len(self._delays) if self._delays else None

    def bytes(self, subject: Subject) -> float | None:
        """What the span occupies."""
        return self._bytes(_tokens(subject))

    def miss_cost(self, subject: Subject, context: int | None = None) -> float | None:
        """The cheaper of recomputing the span and reloading it, seconds; of the whole `context` (tokens) where that is
        given and longer."""
        tokens = _tokens(subject)
        if context is not None:
            tokens = max(context, tokens or 0.0)
        costs = []
        if tokens is not None and self.cost.prefill_tokens_per_s:
            costs.append(tokens / self.cost.prefill_tokens_per_s)
        size = self._bytes(tokens)
        if size is not None and self.cost.reload_bytes_per_s:
            costs.append(size / self.cost.reload_bytes_per_s)
        return min(costs, default=None)

    def _bytes(self, tokens: float | None) -> float | None:
        each = self.cost.bytes_per_token
        return None if tokens is None or each is None else tokens * each


def _tokens(subject: Subject) -> float | None:
    tokens = subject.attributes.get("tokens")
    return tokens if isinstance(tokens, int | float) else None
