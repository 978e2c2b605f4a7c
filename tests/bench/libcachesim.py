"""Block references a second of a plain replay under lru, beside libCacheSim's LRU through its Python binding.

`python tests/bench/libcachesim.py`. Both get the same requests of `claude-code`, read before the clock starts: ours as
calls, libCacheSim's as an oracleGeneral file in its own trace reader (`TraceReader`, `process_trace`). In the same run,
in pairs, alternating who goes first.

Identical hits: an engine re-queues a request's blocks tail first when it ends, a general cache does not. A trace in
which each request's blocks come head to tail and then once more tail to head makes libCacheSim's LRU do the same; its
hits less those of the second passes are compared with ours, and have to be equal. The speed is that of the plain
file, in which each reference stands once.
"""

from __future__ import annotations

import importlib
import statistics
import struct
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from kvpolicy.faults import install
from kvpolicy.simulate.interleaving import Interleaving
from kvpolicy.simulate.library import find
from kvpolicy.simulate.replay import Replay
from kvpolicy.simulate.tally import Tally
from kvpolicy.simulate.trace import Call, Facts

ROUNDS = 9
TRACE, SHARES = "claude-code", (0.01, 0.05, 0.10)


def library() -> Any:
    """libCacheSim; this script has its name, so its own folder must not be looked in first."""
    here = str(Path(__file__).resolve().parent)
    kept = sys.path[:]
    sys.path[:] = [entry for entry in sys.path if str(Path(entry or ".").resolve()) != here]
    try:
        return importlib.import_module("libcachesim")
    finally:
        sys.path[:] = kept


def export(calls: list[Call], path: Path, *, twice: bool) -> int:
    """An oracleGeneral file. twice: every request also tail to head. How many requests do not fit is the caller's."""
    numbers: dict[object, int] = {}
    references = 0
    with path.open("wb") as file:
        for call in calls:
            ids = [numbers.setdefault(block, len(numbers) + 1) for block in call.hashes]
            ids += reversed(ids) if twice else ()
            file.write(b"".join(struct.pack("<IQIq", int(call.at), number, 1, -1) for number in ids))
            references += len(ids)
    return references


def ours(calls: list[Call], blocks: int) -> tuple[float, int]:
    """(seconds, hits) of one replay from an empty pool."""
    tally = Tally("lru", True, blocks)
    replay = Replay(None, blocks, calls[0].request.block_size, tally)
    began = time.perf_counter()
    for call in calls:
        replay.feed(call)
    return time.perf_counter() - began, tally.block_hits


def theirs(module: Any, path: Path, blocks: int, references: int) -> tuple[float, int]:
    """(seconds, hits) of libCacheSim's LRU over a file."""
    reader = module.TraceReader(trace=str(path), trace_type=module.TraceType.ORACLE_GENERAL_TRACE)
    cache = module.LRU(cache_size=blocks)
    began = time.perf_counter()
    misses, _ = cache.process_trace(reader)
    return time.perf_counter() - began, round((1 - misses) * references)


def main() -> int:
    """Print the figures; 1 where hits differ or ours is slower."""
    try:
        module = library()
    except ImportError:
        print(f"  libcachesim is not installed ({install('bench')}): nothing was compared")
        return 0
    facts = Facts()
    calls = list(find(TRACE, Interleaving())[0].calls(facts))
    over = 0
    with tempfile.TemporaryDirectory() as folder:
        once, both = Path(folder) / "once.bin", Path(folder) / "both.bin"
        single, double = export(calls, once, twice=False), export(calls, both, twice=True)
        for share in SHARES:
            blocks = int(share * facts.unique_blocks)
            pairs, hits = [], 0
            for number in range(ROUNDS):
                if number % 2:
                    other, (own, hits) = theirs(module, once, blocks, single)[0], ours(calls, blocks)
                else:
                    (own, hits), other = ours(calls, blocks), theirs(module, once, blocks, single)[0]
                pairs.append((own, other))
            longest = max(len(call.hashes) for call in calls)
            second = single  # each reference of a second pass is a hit, if its request fits
            same = theirs(module, both, blocks, double)[1] - second
            verdict = "identical" if same == hits else f"libCacheSim has {same:,}"
            if longest > blocks:
                verdict = f"not compared: requests of up to {longest:,} blocks do not fit"
            over += same != hits and longest <= blocks
            mine = statistics.median(single / own / 1e6 for own, _ in pairs)
            their = statistics.median(single / other / 1e6 for _, other in pairs)
            ratio = statistics.median(other / own for own, other in pairs)
            low, high = (pick(other / own for own, other in pairs) for pick in (min, max))
            over += ratio < 1
            print(
                f"  {TRACE}, {blocks:,} blocks: ours {mine:.2f} M references/s, libCacheSim's LRU {their:.2f} M/s; "
                f"{ratio:.2f} times its speed (median of {ROUNDS} pairs, {low:.2f} to {high:.2f}); "
                f"{hits:,} hits: {verdict}"
            )
    print(f"  {'reached' if not over else 'NOT REACHED'}: at least libCacheSim's speed with identical hits")
    return int(over > 0)


if __name__ == "__main__":
    sys.exit(main())
