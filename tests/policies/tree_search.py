"""Tree search at full size: a trunk of 30k to 100k tokens, levels of eight branches, a barrier at each.

Played on the embedded engine with a GPU that holds the trunk, the branches of one level and little more, and CPU memory
below it, while other sessions' requests come all the time. Blocks are named so that a name says whose it is.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from kvpolicy.pool import Pool
from kvpolicy.request import Owner, Request, Span
from kvpolicy.steering import Steering
from kvpolicy.workflow.events import Event
from tests.policies.scene import policy_of

SIZE = 250  # tokens of a block
BRANCHES, THOUGHT = 8, 16  # branches a level, blocks of a branch
SPARE, NEIGHBOUR = 24, 100  # blocks besides the trunk and its branches; of a neighbour's prompt
SEARCH = "search"


@dataclass
class Level:
    """What one level showed. Hits are blocks of the trunk found on the GPU when a branch began, the fewest of all;
    parked: live branches' blocks in CPU memory when all are done; back: those on the GPU when the join begins;
    lost: those of live branches that are nowhere then; scored_out, beaten: blocks of losers that are anywhere, before
    the join and after it."""

    trunk_hits: int = 0
    parked: int = 0
    back: int = 0
    lost: int = 0
    scored_out: int = 0
    beaten: int = 0
    onward: int = 0  # blocks of trunk and winners found on the GPU by the level's first branch
    neighbour: int = 0  # of a session that comes back whenever a branch is done: blocks found on the GPU, of all times


@dataclass
class Search:
    """One search under `text` (None: the engine's own order). early: branches are compared as they are done, not at
    the join."""

    text: str | None
    trunk_tokens: int
    levels: int = 3
    early: bool = False
    now: float = 0.0
    seen: list[Level] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.trunk = [f"trunk{i}" for i in range(self.trunk_tokens // SIZE)]
        self.beside = [f"neighbour{i}" for i in range(NEIGHBOUR)]
        room = len(self.trunk) + (BRANCHES + self.levels) * THOUGHT + SPARE
        pool = Pool(room, block_size=SIZE, cpu_blocks=BRANCHES * THOUGHT + 4 * SPARE)
        self.steering = Steering(None if self.text is None else policy_of(self.text), pool)
        self.path: list[str] = []  # winners so far
        self._made = 0

    # --- the search -----------------------------------------------------------------------------------------

    def play(self) -> Search:
        """The search from its first request to the last level's winner."""
        self.end(self.begin(Owner(session=SEARCH, run=SEARCH), [("turn", "")], self.trunk)[0])
        for number in range(self.levels):
            self.seen.append(self.level(number))
        assert not self.steering.counters["failures"]
        return self

    def level(self, number: int) -> Level:
        """Eight branches think at once and are done one after the other; one is scored out before the join."""
        names = [f"l{number}b{i}" for i in range(BRANCHES)]
        seen, running = Level(), {}
        for name in names:
            running[name], on_gpu = self.think(name)
            if name == names[0]:
                seen.onward = on_gpu
                seen.trunk_hits = min(on_gpu, len(self.trunk))
            seen.trunk_hits = min(seen.trunk_hits, on_gpu)
            self.now += 0.1
        for name in names:
            self.now += 3.0
            self.end(running[name])
            self.tell("branch_done", name)
            if name == names[0]:
                self.tell("branch_pruned", name)
            self.strangers(4)
            neighbour, found = self.begin(Owner(session="neighbour"), [("turn", "")], self.beside)
            self.end(neighbour)
            seen.neighbour += found
        self.now += 8.0
        self.strangers(4)
        live, winner = names[1:], names[1 + number]
        ranked = [winner, *(name for name in live if name != winner)]
        if self.early:
            self.score(ranked)
        seen.parked = self.count(live, "cpu")
        seen.scored_out = self.count(names[:1], "gpu") + self.count(names[:1], "cpu")
        self.steering.event(Event(self.now, "barrier", {"run": SEARCH}), self.now)
        seen.back = self.count(live, "gpu")
        seen.lost = len(live) * THOUGHT - seen.back - self.count(live, "cpu")
        if not self.early:
            self.score(ranked)
        self.strangers(60)
        seen.beaten = self.count(ranked[1:], "gpu") + self.count(ranked[1:], "cpu")
        self.path.append(winner)
        return seen

    def score(self, ranked: list[str]) -> None:
        """The branches were compared; the best first."""
        for rank, name in enumerate(ranked, 1):
            self.tell("branch_scored", name, rank=rank)

    def abandoned(self) -> int:
        """Half an hour after the last anybody heard of the search: blocks of its trunk that are still on the GPU after
        others have filled it."""
        self.now += 1801.0
        self.strangers(80)
        views = [self.steering.pool.block(self.trunk, i) for i in range(len(self.trunk))]
        return sum(view is not None and view.tier == "gpu" for view in views)

    def think(self, name: str) -> tuple[str, int]:
        """A branch's request begins, behind the trunk and the winners so far. Returns its blocks found on the GPU."""
        parent = self.path[-1] if self.path else SEARCH
        owner = Owner(session=SEARCH, run=SEARCH, branch=name, parent=parent)
        kinds = [("turn", ""), *(("branch", each) for each in (*self.path, name))]
        return self.begin(owner, kinds, self.prompt(name))

    # --- its surroundings -----------------------------------------------------------------------------------

    def strangers(self, count: int) -> None:
        """Others' requests, each with a prompt that nobody sends again."""
        for _ in range(count):
            self.now += 0.25
            prompt = [f"stranger{self._made}-{i}" for i in range(THOUGHT // 2)]
            self.end(self.begin(Owner(session=f"stranger{self._made}"), [("turn", "")], prompt)[0])

    def begin(self, owner: Owner, kinds: list[tuple[str, str]], blocks: list[str]) -> tuple[str, int]:
        self._made += 1
        name, spans, start = f"r{self._made}", [], 0
        for kind, branch in kinds:
            length = THOUGHT * SIZE if kind == "branch" else min(len(self.trunk), len(blocks)) * SIZE
            spans.append(Span(kind, start, start + length, {"branch": branch} if branch else {}))
            start += length
        request = Request(name, owner, len(blocks) * SIZE, SIZE, tuple(spans))
        self.steering.request(request, list[Hashable](blocks), self.now)
        return name, self.steering.running[name].lease.hits_by_tier[0]

    def end(self, name: str) -> None:
        self.steering.finish(name, self.now, finished=True)

    def tell(self, event: str, branch: str, **facts: object) -> None:
        self.steering.event(Event(self.now, event, {"run": SEARCH, "branch": branch, **facts}), self.now)

    def prompt(self, name: str) -> list[str]:
        """The blocks of a branch's prompt."""
        return [*self.trunk, *(f"{each}-{i}" for each in (*self.path, name) for i in range(THOUGHT))]

    def count(self, names: list[str], tier: str) -> int:
        """How many of these branches' own blocks are in a tier; none of it is a use."""
        found = 0
        for name in names:
            prompt = self.prompt(name)
            views = [self.steering.pool.block(prompt, i) for i in range(len(prompt) - THOUGHT, len(prompt))]
            found += sum(view is not None and view.tier == tier for view in views)
        return found
