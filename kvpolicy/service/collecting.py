"""Python's collector of cycles, so that it holds no request: what has lived for a while is not looked through again.

A full collection looks at every object of the process: with ten thousand sessions it takes longer than any request may
wait, and comes every few thousand requests. Nothing that lives long here is part of a cycle that ends (a test counts
what such cycles would leave), so what outlives one collection is set aside for good, and each has little to look at.
Called by `kvp serve` alone: it is the whole process's.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

THRESHOLDS = (700, 5, 2)  # so that none of the three generations grows large before it is looked through


@contextmanager
def in_small_parts() -> Iterator[None]:
    """While the block runs."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    # Python puts a full collection off until what is new is a quarter of what the last one left: nothing, after this.
    gc.collect()
    gc.set_threshold(*THRESHOLDS)
    gc.callbacks.append(_set_aside)
    try:
        yield
    finally:
        gc.callbacks.remove(_set_aside)
        gc.set_threshold(*before)
        gc.unfreeze()


def _set_aside(phase: str, info: Mapping[str, int]) -> None:
    if phase == "stop" and info["generation"] == len(THRESHOLDS) - 1:
        gc.freeze()
