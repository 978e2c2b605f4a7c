"""A release: what a request held and nobody holds any more, one again where it was cut, and who hears of it.

The embedded pool and an engine's own blocks (`Marks`) let go alike: `unhold`, then `rejoin`, then `tell`. Where the
runs stand in an order of eviction is each pool's. Work is per run.
"""

from __future__ import annotations

from collections.abc import Callable

from kvpolicy.pool.mark import Listener
from kvpolicy.pool.run import Run
from kvpolicy.pool.tree import merge, mergeable


def unhold(end: Run, number: int, now: float) -> list[Run]:
    """One holder less of the prefix that ends with `end`. Returns the runs that nobody holds any more, the deepest
    first: they were let go at `now` (seconds), as number `number`."""
    freed: list[Run] = []
    run = end
    while run.parent is not None:
        run.refs -= 1
        if not run.refs:
            run.release = number
            run.released_at = now
            freed.append(run)
        run = run.parent
    return freed


def rejoin(freed: list[Run], now: float, join: Callable[[Run, Run], None] = merge) -> None:
    """Runs of one release become one where nothing tells them apart. freed: as `unhold` returns them (one at
    least); empty after."""
    head = freed.pop()
    while freed:
        run = freed.pop()
        if mergeable(head, run, now):
            join(head, run)
        head = run


def tell(listener: Listener, end: Run, number: int, now: float) -> None:
    """Tell of the release with this number, which ended at `end`: the marks that asked to hear of it."""
    told = []
    run = end
    while run.parent is not None and run.release == number and not run.refs:
        told += run.told()
        run = run.parent
    for mark in told:
        listener.released(mark, now)
