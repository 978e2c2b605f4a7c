"""A bound on what any order of eviction can save, in seconds, where blocks differ in cost and CPU memory lies below.

Between two uses a block is kept on the GPU (saving what computing it costs, which grows with its place in the prompt),
below it (it saves that less the reload), or not at all. At every call the blocks that wait must fit beside the running
request's. Each of these limits gets a price, and then every block decides for itself; whatever the prices, the sum of
the gains and of the rent for all the room is at least what the best order saves (weak duality of the linear program:
L. A. Wolsey, Integer Programming, ch. 10). The prices are improved by steps along the violated limits (N. Z. Shor). It
may be above what is possible: prefixes need not be whole in it, and links take no time. MIN is this with equal costs.

Reads a `History`; used by the benchmarks. O(calls + waiting runs) a round.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

from kvpolicy.simulate.oracle import NEVER, History


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds for a block: `compute_s` and, for each block before it, `deeper_s` more; `reload_s` from the
    tier below. Defaults: 16 tokens of Llama-3.1-8B on an H100 (25.8 us a token, fitted to measured steps), attention
    after the formula 4 · layers · width · n · p at half of 989 TFLOP/s, 2 MiB over 50 GB/s."""

    compute_s: float = 16 * 25.8e-6
    deeper_s: float = 4 * 32 * 4096 * 16 * 16 / 495e12
    reload_s: float = 16 * 131_072 / 50e9

    def block(self, place: int) -> float:
        """What computing the block at `place` costs."""
        return self.compute_s + self.deeper_s * place


@dataclass(frozen=True, slots=True)
class Bound:
    """saved_s: no order saves more; all_s: what it would cost to compute every block of the trace; infinite_s: what an
    unlimited cache saves. least_s: so much has to be spent in any order."""

    saved_s: float
    infinite_s: float
    all_s: float

    @property
    def least_s(self) -> float:
        """Seconds that remain."""
        return self.all_s - self.saved_s


Run = tuple[int, int, int, int]  # used by this call, next by that one, first place, blocks


def runs(history: History) -> Iterator[Run]:
    """The blocks that wait for one coming call are consecutive in the prompt, the nearest use at its head."""
    for call, uses in enumerate(history.next_uses()):
        place = 0
        for use, blocks in uses:
            if use != NEVER:
                yield call, use, place, blocks
            place += blocks


def cost_bound(history: History, gpu: int, cpu: int = 0, costs: Costs | None = None, rounds: int = 150) -> Bound:
    """The bound for a GPU of `gpu` blocks and `cpu` below it."""
    costs = costs or Costs()
    waiting = list(runs(history))
    count = len(history)
    room = [gpu - min(history.length(call), gpu) for call in range(count)]
    infinite = sum(_between(costs, place, 0, blocks) for _, _, place, blocks in waiting)
    whole = sum(_between(costs, 0, 0, history.length(call)) for call in range(count))
    upper, lower = [0.0] * count, [0.0] * count  # prices of a block's room at each call
    best, step = infinite, 0.0
    for turn in range(rounds):
        of_gpu, of_cpu = list(accumulate(upper, initial=0.0)), list(accumulate(lower, initial=0.0))
        gain = sum(price * free for price, free in zip(upper, room, strict=True)) + cpu * sum(lower)
        held, below = [0] * (count + 1), [0] * (count + 1)
        for call, use, place, blocks in waiting:
            rent, rent_below = of_gpu[use] - of_gpu[call + 1], of_cpu[use] - of_cpu[call + 1] + costs.reload_s
            least = min(rent, rent_below) if cpu else rent
            first = _worth(costs, place, blocks, least)
            kept = blocks - first
            if not kept:
                continue
            gain += _between(costs, place, first, blocks) - kept * least
            where = held if not cpu or rent <= rent_below else below
            where[call + 1] += kept
            where[use] -= kept
        best = min(best, gain)
        over = [h - free for h, free in zip(accumulate(held[:count]), room, strict=True)]
        over_below = [b - cpu for b in accumulate(below[:count])]
        length = sum(o * o for o in over) + (sum(o * o for o in over_below) if cpu else 0)
        if not length:
            break
        step = (gain - 0.97 * best if turn else 0.1 * gain) / length * (1.0 if turn < rounds // 2 else 0.5)
        upper = [max(0.0, price + step * o) for price, o in zip(upper, over, strict=True)]
        if cpu:
            lower = [max(0.0, price + step * o) for price, o in zip(lower, over_below, strict=True)]
    return Bound(best, infinite, whole)


def _between(costs: Costs, place: int, first: int, last: int) -> float:
    """What computing the blocks `first … last` of a run that begins at `place` costs."""
    number = last - first
    return number * (costs.block(place + first) + costs.block(place + last - 1)) / 2 if number > 0 else 0.0


def _worth(costs: Costs, place: int, blocks: int, price: float) -> int:
    """The first block of a run that is worth its price; deeper ones are worth more."""
    short = price - costs.block(place)
    if short < 0:
        return 0
    if costs.deeper_s <= 0:
        return blocks
    return min(blocks, int(short / costs.deeper_s) + 1)
