"""kvflow: what is reused of an agent's prompt and of another's output, and prefixes that come up a step ahead."""

from __future__ import annotations

import pytest

from kvpolicy.request import Owner
from tests.policies.scene import Part, Scene, text_of

NAMES = ("plan", "search", "write", "review")
RING = {
    "nodes": NAMES,
    "edges": [["plan", "search"], ["search", "write"], ["write", "review"]],
    "loops": [{"from": "review", "to": "plan", "at_most": 2}],
}
PREFIX, ADDED, OUTPUT = 6, 3, 2  # blocks


def owner(name: str) -> Owner:
    return Owner(session="job", run="job", agent=name)


def step(scene: Scene, name: str, parts: list[Part]) -> int:
    """One step of an agent, whose answer takes two blocks. Returns how many blocks of its prompt were cached."""
    began = scene.start(owner(name), parts)
    found = scene.cached
    words = [f"{text}{i}" for _, text, blocks in parts for i in range(blocks)]
    answer = [f"{name}-said{i}" for i in range(OUTPUT)]
    scene.now += 1.0
    behind = ["/".join([*words, *answer[: i + 1]]) for i in range(OUTPUT)]
    scene.steering.progress(began, scene.now, hashes=behind)
    scene.end(began, finished=True)
    return found


def where(scene: Scene, name: str) -> list[str]:
    """The tier of every block of an agent's prefix."""
    hashes = ["/".join(f"{name}{i}" for i in range(end)) for end in range(1, PREFIX + 1)]
    views = [scene.steering.pool.block(hashes, i) for i in range(PREFIX)]
    return ["gone" if view is None else view.tier for view in views]


def test_an_agent_finds_its_own_prefix_and_another_s_output_only_behind_that_one_s_prompt() -> None:
    scene = Scene(text_of("kvflow"), 64, graph=RING)
    asked: list[Part] = [("system", "plan", PREFIX), ("turn", "task", ADDED)]
    assert step(scene, "plan", asked) == 0
    # The plan is copied into the prompt of another agent, behind that one's own prefix: other tokens stand before it.
    copied: list[Part] = [("turn", "plan-said", OUTPUT)]
    assert step(scene, "search", [("system", "search", PREFIX), *copied]) == 0
    # The same words behind the planner's whole prompt: all of it is found, the output, too.
    assert step(scene, "write", [*asked, *copied, ("turn", "now write", 1)]) == PREFIX + ADDED + OUTPUT
    assert step(scene, "plan", [("system", "plan", PREFIX), ("turn", "again", ADDED)]) == PREFIX
    assert not scene.failures()


@pytest.mark.parametrize(("text", "found"), [(text_of("kvflow"), [24, 24]), (None, [0, 0])], ids=["kvflow", "lru"])
def test_prefixes_come_up_one_step_ahead(text: str | None, found: list[int]) -> None:
    """A GPU for two prefixes and what is added to them: the others lie in CPU memory until their agent is next."""
    scene = Scene(text, 2 * PREFIX + ADDED + OUTPUT, graph=RING, cpu_blocks=60)
    on_gpu = []
    for turn in range(3):
        hits = 0
        for number, name in enumerate(NAMES):
            next_one = NAMES[(number + 1) % 4]
            began = scene.start(owner(name), [("system", name, PREFIX), ("turn", f"{name}{turn}-", ADDED)])
            hits += scene.steering.running[began].lease.hits_by_tier[0]
            if text is not None and turn and (turn, name) != (2, "review"):
                assert where(scene, next_one) == ["gpu"] * PREFIX  # while this one runs
            scene.now += 1.0
            scene.end(began, finished=True)
        on_gpu.append(hits)
    assert on_gpu[1:] == found
    assert not scene.failures()


def test_an_agent_whose_loop_is_used_up_goes_before_what_nobody_tagged() -> None:
    scene = Scene(text_of("kvflow"), 200, graph=RING)
    ranks = []
    for turn in range(3):
        for name in NAMES:
            scene.ask(owner(name), [("system", name, PREFIX), ("turn", f"{name}{turn}-", ADDED)], finished=True)
        hashes = ["/".join(f"plan{i}" for i in range(end)) for end in range(1, PREFIX + 1)]
        ranks.append(scene.steering.show(hashes, 0)["rank"])
    assert ranks == [95, 95, 20]
    assert not scene.failures()
