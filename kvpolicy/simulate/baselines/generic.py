"""Replacement rules of general caches, run by libCacheSim itself through its Python binding: `arc`, `s3fifo`, `lirs`,
`2q`. Block by block, head to tail, as in `objects`.

Sources: ARC, Megiddo and Modha, FAST 2003; S3-FIFO, Yang et al., SOSP 2023; LIRS, Jiang and Zhang, SIGMETRICS 2002; 2Q,
Johnson and Shasha, VLDB 1994; all as libCacheSim (Apache-2.0, cacheMon/libCacheSim) has them. Needs the extra `bench`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from kvpolicy.faults import InputFault, install
from kvpolicy.simulate.baselines.objects import Baseline
from kvpolicy.simulate.trace import BlockId

FEWEST = 20  # blocks: below, one of its queues has no room, and S3-FIFO ends the process


class Generic:
    """One of libCacheSim's caches, of `capacity` objects of size 1."""

    def __init__(self, kind: str, capacity: int) -> None:
        library = _library()
        if capacity < FEWEST:
            raise InputFault(f"{kind.lower()} divides its room into queues: it takes at least {FEWEST} blocks")
        self._cache: Any = getattr(library, kind)(cache_size=capacity)
        self._request: Any = library.Request()
        self._request.obj_size = 1
        self._numbers: dict[BlockId, int] = {}
        self._misses = 0
        self.evictions = 0

    def use(self, hashes: Sequence[BlockId]) -> int:
        """One request's blocks, head to tail; its hits: those of the leading run."""
        request, get, numbers = self._request, self._cache.get, self._numbers
        hits, leading, missed = 0, True, 0
        for block in hashes:
            number = numbers.get(block)
            if number is None:
                number = numbers[block] = len(numbers) + 1
            request.obj_id = number
            if get(request):
                hits += leading
            else:
                leading = False
                missed += 1
        self._misses += missed
        self.evictions = self._misses - int(self._cache.get_n_obj())
        return hits


def _library() -> Any:
    try:
        import libcachesim
    except ImportError:
        raise InputFault(f"arc, s3fifo, lirs and 2q are libCacheSim's: {install('bench')}") from None
    if not hasattr(libcachesim, "Request"):
        raise InputFault(f"{libcachesim.__file__} is another module than libCacheSim")
    return libcachesim


GENERIC: dict[str, Callable[[int], Baseline]] = {
    "arc": partial(Generic, "ARC"),
    "s3fifo": partial(Generic, "S3FIFO"),
    "lirs": partial(Generic, "LIRS"),
    "2q": partial(Generic, "TwoQ"),
}
