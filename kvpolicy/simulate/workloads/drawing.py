"""Random quantities through their published figures. Every function takes the session's own generator."""

from __future__ import annotations

import math
import random

_Z90 = 1.2815515655446004  # the normal distribution's 90 % quantile


def normal(draw: random.Random, mean: float, sd: float, least: float, most: float = math.inf) -> float:
    """Normal, cut off at `least` and `most` (what lies beyond is set to the bound)."""
    return min(max(draw.gauss(mean, sd), least), most)


def between(draw: random.Random, median: float, p90: float) -> float:
    """Log-normal through its median and its 90 % quantile."""
    return lognormal(draw, median, math.log(p90 / median) / _Z90)


def lognormal(draw: random.Random, median: float, sigma: float) -> float:
    """Log-normal; sigma of the logarithm."""
    return median * math.exp(draw.gauss(0.0, sigma))


def positive(draw: random.Random, mean: float, sd: float) -> float:
    """Gamma-distributed with this mean and standard deviation: never negative, and no clipping that moves the mean."""
    shape = (mean / sd) ** 2
    return draw.gammavariate(shape, mean / shape)


def poisson(draw: random.Random, mean: float) -> int:
    """A count (Knuth's product of uniforms; mean up to some dozens)."""
    bound, product, count = math.exp(-mean), draw.random(), 0
    while product > bound:
        product *= draw.random()
        count += 1
    return count


def shares(draw: random.Random, count: int, total: int, sigma: float = 0.5) -> list[int]:
    """`total` in `count` positive whole parts of uneven size."""
    weights = [lognormal(draw, 1.0, sigma) for _ in range(count)]
    scale = max(total - count, 0) / sum(weights)
    parts = [1 + int(weight * scale) for weight in weights]
    parts[-1] += max(total - sum(parts), 0)
    return parts
