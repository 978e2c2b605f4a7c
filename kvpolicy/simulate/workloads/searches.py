"""Tree search in the shapes that DeFT published (arXiv 2404.00242, dataset/generation/Reasoning of LINs-lab/DeFT:
graphs of thoughts over four tasks), with a trunk of 30k to 100k tokens and an AND barrier at each level.

| task | depth | tokens of a node, p50 / p90 |
|---|---|---|
| docmerge | 3 | 1,023 / 1,328 |
| keyword | 6 | 78 / 100 |
| set | 9 | 63 / 171 |
| sort | 10 | 369 / 888 |

Published too: ten branches a node, one kept at each level, a root of 1,104 to 1,611 tokens. Ours: the trunk (the root
stretched to the size of the case), when branches think (log-normal, median 8 s), the two calls of a branch (it
thinks; it looks at its thought again at the join), and that one branch a level is given up before the join.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping

from kvpolicy.request import Owner
from kvpolicy.simulate.workloads.drawing import between, lognormal
from kvpolicy.simulate.workloads.making import Item, Session, Talk, arrivals
from kvpolicy.simulate.workloads.prompt import Blocks, Prompt

SHAPES = {
    1: ("docmerge", 3, 1_023, 1_328),
    2: ("keyword", 6, 78, 100),
    3: ("set", 9, 63, 171),
    4: ("sort", 10, 369, 888),
}
TASKS = {name: number for number, (name, *_) in SHAPES.items()}
LEVEL_S = 25  # a level takes about as long
QUESTION = 32  # tokens of the judge's question behind a thought


def search(settings: Mapping[str, float], seed: int, blocks: Blocks) -> Iterable[Session]:
    """`searches` at once, each over a trunk of its own, and beside each, while it runs, `others` sessions a
    minute whose 2,000 tokens nobody sends again."""
    draw = random.Random(f"{seed}/starts")
    for number, start in enumerate(arrivals(draw, int(settings["searches"]), settings["per_s"])):
        yield _search(f"search{number}", random.Random(f"{seed}/search/{number}"), start, settings, blocks)
        yield from _others(number, random.Random(f"{seed}/others/{number}"), start, settings, blocks)


def _others(
    number: int, draw: random.Random, start: float, settings: Mapping[str, float], blocks: Blocks
) -> Iterable[Session]:
    """Sessions of one request each, for as long as a search takes."""
    count = round(settings["others"] / 60 * LEVEL_S * SHAPES[int(settings["task"])][1])
    for other, at in enumerate(arrivals(draw, count, settings["others"] / 60 or 1.0)):
        yield _other(f"other{number}.{other}", start + at, blocks)


def _other(name: str, start: float, blocks: Blocks) -> Session:
    yield Talk(Owner(session=name), start).call(Prompt(blocks).add("turn", 2_000), 100)


def _search(name: str, draw: random.Random, start: float, settings: Mapping[str, float], blocks: Blocks) -> Session:
    _, depth, p50, p90 = SHAPES[int(settings["task"])]
    branches, trunk = int(settings["branches"]), round(settings["trunk"])
    root = Talk(Owner(session=name, run=name), start)
    path = Prompt(blocks).add("system", min(1_024, trunk // 4)).add("document", trunk - min(1_024, trunk // 4))
    yield root.call(path, 64)
    parent, waits = name, [root.last]
    for level in range(depth):
        owners = [Owner(session=name, run=name, branch=f"{name}.{level}.{i}", parent=parent) for i in range(branches)]
        talks = [Talk(owner, root.now + 0.05 * i, {"depth": level}) for i, owner in enumerate(owners)]
        for talk in talks:
            talk.pause = 0.0 if level == 0 else 0.5
        sizes = [max(1, round(between(draw, p50, p90))) for _ in owners]
        prompts = [
            path.fork().add("branch", size, branch=owner.branch) for owner, size in zip(owners, sizes, strict=True)
        ]
        done = [lognormal(draw, 8.0, 0.5) for _ in owners]
        pruned = draw.randrange(branches) if branches > 2 else -1
        yield from _think(waits, talks, prompts, done, pruned)
        live = [i for i in range(branches) if i != pruned]
        draw.shuffle(live)
        called = max(talk.now - seconds for talk, seconds in zip(talks, done, strict=True))
        root.now = max(talk.now for talk in talks) + 2.0
        yield root.now, {"event": "barrier", "session": name, "run": name}
        yield from _judge(root, [(talks[i], prompts[i]) for i in live], called, [talk.last for talk in talks])
        waits = [talks[i].last for i in live]
        for rank, i in enumerate(live, 1):
            yield talks[i].now, {"event": "branch_scored", "run": name, "branch": owners[i].branch, "rank": rank}
        path, parent = prompts[live[0]], str(owners[live[0]].branch)
    root.pause = 0.5
    yield root.call(path.add("turn", QUESTION), 256, waits_for=waits)
    yield root.now, {"event": "workflow_end", "session": name, "run": name}


def _think(
    waits: list[str | None], talks: list[Talk], prompts: list[Prompt], done: list[float], pruned: int
) -> Iterable[Item]:
    """All branches think at once; each is done, or given up, in its time."""
    items: list[Item] = []
    for i, (talk, prompt) in enumerate(zip(talks, prompts, strict=True)):
        items.append(talk.call(prompt, 8, waits_for=waits))
        talk.now = talk.now + done[i]
        items.append(talk.tell("branch_done"))
        if i == pruned:
            items.append(talk.tell("branch_pruned"))
    return sorted(items, key=lambda item: item[0])


def _judge(root: Talk, live: list[tuple[Talk, Prompt]], called: float, waits: list[str | None]) -> Iterable[Item]:
    """At the join every thought is read again, with a question behind it. called: when the last call of a branch was
    over; the time that it thinks is a pause."""
    for number, (talk, prompt) in enumerate(live):
        talk.now = root.now + 0.5 * (number + 1)
        talk.pause = talk.now - called
        yield talk.call(prompt.fork().add("turn", QUESTION), 8, waits_for=waits)
    root.now = max(talk.now for talk, _ in live) + 0.5
    for talk, _ in live:
        talk.now = root.now
