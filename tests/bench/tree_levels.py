"""One tree search in a pool for its trunk, the winners on the way and three of eight branches: what stands when.

Plays the made workload `tree-docmerge` (one search, others beside it) through the same replay as `kvp simulate`, with
CPU memory below the GPU, and looks at the pool between the calls; looking renews nothing. Read by the tests of the
workloads and by `workflows_policies.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import resources

from kvpolicy.language.load import load_text
from kvpolicy.policy.checked import examined
from kvpolicy.policy.policy import Policy
from kvpolicy.simulate.replay import Replay
from kvpolicy.simulate.tally import Tally
from kvpolicy.simulate.trace import Call, Facts
from kvpolicy.simulate.workloads.catalogue import workload

BRANCHES, ROOM = 8, 3  # branches a level, and how many of them the GPU has room for
TEXT = resources.files("kvpolicy.policies").joinpath("tree_of_thought.kvp").read_text(encoding="utf-8")
ABLATIONS: Mapping[str, str | None] = {
    "tree_of_thought": TEXT,
    "without priorities": re.sub(r"priority: (\d+|clamp\(.*, 100\)) *", "", TEXT),
    "without lifetimes": re.sub(r"ttl: *search *", "", TEXT),
    "without tiers and prefetch": re.sub(r"tier: gpu(, cpu after 5s)? *|prefetch: (yes|no) *|admit: no *", "", TEXT),
    "lru": None,
}


@dataclass
class Level:
    """What one level showed.

    trunk: the least share of the trunk found on the GPU by any of its calls. lost, lost_below: blocks of pruned ones
    that were on the GPU, or below it, at a call while others waited, the most at once. waiting: live branches at the
    barrier. ready: how many of them were whole on the GPU as the join began. found: how many were whole in some tier
    when their own call of the join came; ready_then: on the GPU.
    """

    trunk: float = 1.0
    lost: int = 0
    lost_below: int = 0
    waiting: int = 0
    ready: int = 0
    ready_then: int = 0
    found: int = 0

    def as_json(self) -> dict[str, object]:
        """For the evidence."""
        return asdict(self)


def compiled(text: str | None) -> Policy | None:
    """A policy of its text."""
    return None if text is None else examined(load_text(text, "ablation")).policy()


def play(text: str | None, trunk: int, seed: int = 7, others: int = 60) -> tuple[list[Level], Tally]:
    """The whole search under one policy (None: the engine's own order)."""
    facts = Facts()
    settings = {"searches": 1, "trunk": trunk, "others": others, "branches": BRANCHES}
    calls = list(workload("tree-docmerge", seed, dict(settings)).calls(facts))
    search = _Search(calls)
    tally = Tally("tree", False, search.room(ROOM))
    replay = Replay(compiled(text), tally.capacity_blocks, 16, tally, None, cpu_blocks=search.below())
    levels: dict[int, Level] = {}
    for call in calls:
        depth = search.depth(call)
        joined = depth is not None and id(call) in search.judged
        before, call.before = call.before, ()
        for row in before:
            _tell(replay, row, call.at)
        if depth is not None:
            level = levels.setdefault(depth, Level())
            if joined and not level.waiting:
                live = [each for each in search.of_level(depth) if id(each) in search.judged]
                level.waiting = len(live)
                level.ready = sum(search.whole(replay, each) == "gpu" for each in live)
            if joined:
                tier = search.whole(replay, call)
                level.ready_then += tier == "gpu"
                level.found += tier is not None
            level.trunk = min(level.trunk, search.trunk_share(replay, call))
            on_gpu, below = search.lost(replay, depth, call)
            level.lost, level.lost_below = max(level.lost, on_gpu), max(level.lost_below, below)
        replay.feed(call)
        call.before = before
    replay.end()
    assert not tally.failures
    return [levels[depth] for depth in sorted(levels)], tally


def _tell(replay: Replay, row: Mapping[str, object], now: float) -> None:
    from kvpolicy.workflow.events import Event

    at = row["at"]
    assert isinstance(at, int | float)
    event = Event(float(at), str(row["event"]), {k: v for k, v in row.items() if k not in ("at", "event")})
    replay.steering.event(event, min(event.at, now))


class _Search:
    """Whose blocks are whose in the search's calls."""

    def __init__(self, calls: list[Call]) -> None:
        self.calls = [call for call in calls if str(call.request.owner.session).startswith("search")]
        self.trunk = len(self.calls[0].hashes)
        self.judged: set[int] = set()
        self._own: dict[str, tuple[list[int], int]] = {}  # a branch: its thought's prompt, where its own blocks begin
        self._pruned: dict[str, float] = {}
        for call in calls:
            for row in call.before:
                if row["event"] == "branch_pruned":
                    at = row["at"]
                    assert isinstance(at, int | float)
                    self._pruned[str(row["branch"])] = float(at)
        for call in self.calls:
            branch = call.request.owner.branch
            if branch is None:
                continue
            if branch in self._own:
                self.judged.add(id(call))
                continue
            end = call.request.spans[-1]
            self._own[branch] = ([int(block) for block in call.hashes], -(-end.start // 16))

    def room(self, branches: int) -> int:
        """Blocks for the trunk, the longest branches, and the winners before the last level."""
        sizes = sorted((len(hashes) - start + 1 for hashes, start in self._own.values()), reverse=True)
        path = max(start for _, start in self._own.values()) - self.trunk
        return self.trunk + path + sum(sizes[:branches]) + 4  # and the question at the join

    def below(self) -> int:
        """Blocks for the branches of one level."""
        sizes = sorted((len(hashes) - start + 1 for hashes, start in self._own.values()), reverse=True)
        return sum(sizes[:BRANCHES])

    def depth(self, call: Call) -> int | None:
        """The level of a branch's call, None for all others."""
        depth = call.request.attributes.get("depth")
        return depth if isinstance(depth, int) else None

    def of_level(self, depth: int) -> list[Call]:
        """The calls of all branches of a level."""
        return [call for call in self.calls if self.depth(call) == depth]

    def trunk_share(self, replay: Replay, call: Call) -> float:
        """How much of the trunk is on the GPU."""
        found = start = 0
        for end, view in replay.steering.pool.stretches(call.hashes, self.trunk):
            found += (min(end, self.trunk) - start) * (view.tier == "gpu")
            start = end
        return found / self.trunk

    def whole(self, replay: Replay, call: Call) -> str | None:
        """The lowest tier that any block of the branch's own thought is in; None where one is gone."""
        hashes, start = self._own[str(call.request.owner.branch)]
        last, tiers = 0, set[str]()
        for end, view in replay.steering.pool.stretches(hashes, len(hashes)):
            if end > start:
                tiers.add(view.tier)
            last = end
        if last < len(hashes):
            return None
        return "gpu" if tiers == {"gpu"} else "lower"

    def lost(self, replay: Replay, depth: int, call: Call) -> tuple[int, int]:
        """Blocks of this level's pruned branches that are on the GPU, and below it."""
        found = [0, 0]
        for branch, at in self._pruned.items():
            if branch.split(".")[1] == str(depth) and at < call.at:
                hashes, start = self._own[branch]
                at_block = 0
                for end, view in replay.steering.pool.stretches(hashes, len(hashes)):
                    found[view.tier != "gpu"] += max(end - max(at_block, start), 0)
                    at_block = end
        return found[0], found[1]


def main() -> None:
    """One line a level, for each ablation, with a trunk of 30k tokens."""
    for name, text in ABLATIONS.items():
        levels, tally = play(text, 30_000)
        print(f"  {name}: {tally.capacity_blocks} blocks, {tally.recomputed_tokens:,} tokens recomputed")
        for number, level in enumerate(levels):
            print(f"    level {number}: {level.as_json()}")


if __name__ == "__main__":
    main()
