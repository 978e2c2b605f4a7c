"""Python's collector stopped while much is built that stays: it would walk the growing whole again and again.

Used by `parse` for large texts and by the analysis for many rules: a third to two thirds of their time.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def stopped(*, where: bool) -> Iterator[None]:
    """Collect nothing inside, where that pays; it goes on afterwards if it was going before."""
    if not (where and gc.isenabled()):
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
