"""What a replay decides, as a digest a policy: two commits that decide alike print the same, line for line.

`python tests/bench/hits.py > FILE` on each, then `diff`. For whoever makes the path of a request faster: every hit,
every evicted block in its order, and the order of eviction at the end go into the digest, on one tier and on three.
"""

from __future__ import annotations

import hashlib
from itertools import islice

from kvpolicy.faults import InputFault
from kvpolicy.pool import Pool
from kvpolicy.simulate.interleaving import Interleaving
from kvpolicy.simulate.library import find
from kvpolicy.simulate.names import contender
from kvpolicy.simulate.replay import Replay
from kvpolicy.simulate.tally import Tally
from kvpolicy.simulate.trace import Call, Facts
from kvpolicy.steering import Steering

POLICIES = ("lru", "base", "coding_agent", "chat_rag", "continuum", "continuum_released", "kvflow", "adaptive")
TRACE, CALLS, SIZES = "claude-code", 2_500, ((500, 0), (2_526, 0), (1_500, 1_500))


class _Noted(Replay):
    """A replay that writes down what became of every request."""

    def note(self, calls: list[Call], lower: int) -> tuple[int, str]:
        """Blocks hit, and the digest. lower: blocks of each tier below the first."""
        size, capacity = calls[0].request.block_size, self.steering.pool.capacity
        pool = Pool(capacity, block_size=size, cpu_blocks=lower, disk_blocks=lower)
        self.steering = Steering(self.steering.policy, pool)
        digest, hits, passed = hashlib.sha256(), 0, self.steering.pass_by

        def noted(*given: object, **more: object) -> object:
            nonlocal hits
            outcome = passed(*given, **more)  # type: ignore[arg-type]
            hits += outcome.cached
            digest.update(repr((outcome.cached, outcome.evicted)).encode())
            return outcome

        self.steering.pass_by = noted  # type: ignore[assignment, method-assign]
        for call in calls:
            self.feed(call)
        digest.update(repr(pool.eviction_order()).encode())
        return hits, digest.hexdigest()[:16]


def main() -> None:
    """Print one line a policy and size."""
    trace, told = find(TRACE, Interleaving())
    calls = list(islice(trace.calls(Facts()), CALLS))
    print(f"  {TRACE}, {len(calls):,} requests{'' if told is None else f' ({told})'}")
    for name in POLICIES:
        try:
            policy = contender(name).policy()
        except InputFault as fault:
            print(f"  {name}: skipped, {fault}")
            continue
        for capacity, lower in SIZES:
            one = _Noted(policy, capacity, calls[0].request.block_size, Tally(name, False, capacity))
            hits, digest = one.note(calls, lower)
            failures = one.steering.counters["failures"]
            print(f"  {name:20} {capacity:6,} + {lower:5,} blocks: {hits:9,} hits, {digest}, {failures} failures")


if __name__ == "__main__":
    main()
