"""How long to hold a context while its tool runs: Continuum's utility maximum (arXiv 2511.02230).

    tau* = argmax over tau >= 0 of  P(tau, f) * (T * eta + PrefillReload(r)) - tau

f: the tool; P(tau, f): share of its observed durations that are <= tau; T: recent mean waiting time of requests whose
blocks had been lost; eta, "memoryfulness": -Corr(k, N - k) of k turns done and N - k turns left; PrefillReload(r): time
to recompute or reload the context. Between two observed durations the value only falls, so only 0 and observed
durations are tried. Cold start with K = 100: at most K durations of all tools give the default, at most K of this tool
give those of all tools.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from kvpolicy.workflow.durations import Series

COLD_START_K = 100
DEFAULT_HOLD_S = 2.0  # the default of the authors' code


def best_hold(own: Series | None, everything: Series, gain: float) -> float:
    """Seconds to hold; `gain` = T * eta + PrefillReload(r), seconds. 0 where no hold pays."""
    if everything.count <= COLD_START_K:
        return DEFAULT_HOLD_S
    series = own if own is not None and own.count > COLD_START_K else everything
    return series.best_bound(gain)


class Memoryfulness:
    """eta over the sessions that have ended: near 1 where many turns done mean few turns left."""

    __slots__ = ("_k", "_kk", "_kr", "_n", "_r", "_rr")

    def __init__(self) -> None:
        self._n = self._k = self._r = self._kk = self._rr = self._kr = 0.0

    def ended(self, turns: int) -> None:
        """A session ended after `turns` turns: it adds the pairs (k, turns - k) for k = 1 … turns."""
        n = float(turns)
        squares = n * (n + 1) * (2 * n + 1) / 6
        self._n += n
        self._k += n * (n + 1) / 2
        self._r += n * (n - 1) / 2
        self._kk += squares
        self._rr += squares - n * n
        self._kr += n * n * (n + 1) / 2 - squares

    def state(self) -> list[float]:
        """The sums it is made of: of pairs, k, r, k k, r r and k r."""
        return [self._n, self._k, self._r, self._kk, self._rr, self._kr]

    @classmethod
    def of(cls, sums: Sequence[float]) -> Memoryfulness:
        """The one with that `state`."""
        made = cls()
        made._n, made._k, made._r, made._kk, made._rr, made._kr = map(float, sums)
        return made

    def eta(self) -> float:
        """-Corr(k, N - k), not below 0; 1 while too little is known (then all sessions are alike)."""
        spread_k = self._n * self._kk - self._k**2
        spread_r = self._n * self._rr - self._r**2
        if spread_k <= 0.0 or spread_r <= 0.0:
            return 1.0
        return max(0.0, -(self._n * self._kr - self._k * self._r) / math.sqrt(spread_k * spread_r))
