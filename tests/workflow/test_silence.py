"""A run whose events stop says nothing any more after an hour: its spans rank as if nobody had touched them."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from kvpolicy import words
from kvpolicy.policy.model import NEVER, Subject
from kvpolicy.request import Owner, Request
from kvpolicy.workflow.events import Event
from kvpolicy.workflow.graph import Graph
from kvpolicy.workflow.runs import SILENT_S
from kvpolicy.workflow.state import RunState
from tests.policies.scene import Scene, text_of

CHAIN = {
    "nodes": ["plan", "act", "check", "end"],
    "edges": [["plan", "act"], ["act", "check"], ["check", "end"]],
    "loops": [{"from": "check", "to": "act", "at_most": 3}],
}
NODES = ("plan", "act", "check", "end")
PROMPT = [("system", "prompt of {}", 3), ("turn", "turn of {}", 2)]


def prompt(node: str) -> list[tuple[str, str, int]]:
    return [(kind, text.format(node), blocks) for kind, text, blocks in PROMPT]


def shown(scene: Scene) -> list[tuple[int, bool]]:
    """Rank and protection of every node's blocks that are there."""
    rows = []
    for node in NODES:
        names = [f"{text}{i}" for _, text, blocks in prompt(node) for i in range(blocks)]
        hashes = ["/".join(names[: i + 1]) for i in range(len(names))]
        rows += scene.steering.show_all(hashes, range(len(hashes)))
    return [(row["rank"], row["protected"]) for row in rows if row["state"] == "resident"]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 10))
def test_after_the_hour_nothing_of_it_ranks_above_what_nobody_touched(seed: int, steps: int) -> None:
    chance = random.Random(seed)
    scene = Scene(text_of("kvflow"), 200, CHAIN)
    for _ in range(steps):
        node = chance.choice(NODES)
        owner = Owner("t", "s", "run", node)
        if chance.random() < 0.7:
            scene.tell("step_start", run="run", tenant="t", node=node)
        scene.ask(owner, prompt(node), finished=chance.choice((True, False, None)))
        if chance.random() < 0.7:
            scene.tell(chance.choice(("step_end", "tool_call", "pause")), run="run", tenant="t", agent=node, node=node)
    before = shown(scene)
    scene.steering.advance(scene.now + SILENT_S - 1.0)
    assert shown(scene) == before
    scene.steering.advance(scene.now + SILENT_S)
    assert all(rank <= words.DEFAULT_PRIORITY and not protected for rank, protected in shown(scene))


def test_what_is_heard_of_ranks_higher() -> None:
    """The property above would hold of a policy that says nothing."""
    scene = Scene(text_of("kvflow"), 200, CHAIN)
    scene.ask(Owner("t", "s", "run", "plan"), prompt("plan"))
    assert max(shown(scene)) > (words.DEFAULT_PRIORITY, False)


def test_it_speaks_again_when_something_is_heard_after_hours() -> None:
    state = RunState(graph=Graph.build(CHAIN))
    check = Subject("turn", {"node": "check"}, Owner("t", "s", "run", "check"))
    state.observe(Event(0.0, "step_start", {"tenant": "t", "run": "run", "node": "plan"}))
    state.observe(Event(5.0, "step_end", {"tenant": "t", "run": "run", "node": "plan"}))
    assert state.read("steps_to_next_use", None, check) == 2
    state.advance(5.0 + SILENT_S - 1.0)
    assert state.read("steps_to_next_use", None, check) == 2
    state.advance(5.0 + SILENT_S)
    for function in ("steps_to_next_use", "next_use", "reuse_probability"):
        assert state.read(function, None, check) is None
    state.observe(Event(40_000.0, "step_start", {"tenant": "t", "run": "run", "node": "act"}))
    assert state.read("steps_to_next_use", None, check) == 1
    plan = Subject("turn", {"node": "plan"}, Owner("t", "s", "run", "plan"))
    assert state.read("steps_to_next_use", None, plan) == NEVER  # it stands where it stood


def test_any_word_of_its_owners_counts_as_heard_and_so_does_a_request_that_runs() -> None:
    state = RunState(graph=Graph.build(CHAIN))
    actor = Owner("t", "s", "run", "act")
    check = Subject("turn", {"node": "check"}, Owner("t", "s", "run", "check"))
    state.observe(Event(0.0, "step_start", {"tenant": "t", "run": "run", "node": "act"}))
    request = Request("r", actor, 10, 16)
    state.arrive(request, 100.0)
    state.advance(100.0 + 2 * SILENT_S)  # its answer takes that long
    assert state.read("steps_to_next_use", None, check) == 1
    state.answer(request, 110.0 + 2 * SILENT_S, tool_calls=[("grep", "c1")])
    state.observe(Event(3.0 * SILENT_S, "tool_result", {"tenant": "t", "run": "run", "call": "c1"}))
    state.advance(3.9 * SILENT_S)
    assert state.read("steps_to_next_use", None, check) == 1
    state.advance(4.0 * SILENT_S)
    assert state.read("steps_to_next_use", None, check) is None
    assert state.silenced() == (actor,)
    assert state.silenced() == ()


def test_silent_runs_are_forgotten_after_a_day() -> None:
    state = RunState(graph=Graph.build(CHAIN))
    for number in range(50):
        state.observe(Event(float(number), "step_start", {"tenant": "t", "run": f"r{number}", "node": "plan"}))
    state.advance(2 * SILENT_S)
    assert (len(state.runs.held.active), len(state.runs.held.silent)) == (0, 50)
    state.advance(86_400.0 + 20.0)
    state.reap()
    assert len(state.runs.held.silent) == 29


def test_a_forgotten_branch_does_not_make_a_trunk() -> None:
    state = RunState()
    trunk = Owner("t", "s")
    state.know(trunk)
    for name in ("b1", "b2"):
        state.know(Owner("t", "s", branch=name, parent="s"))
    assert state.read("fan_out", None, Subject("turn", {}, trunk)) == 2
    state.advance(SILENT_S)
    assert state.read("fan_out", None, Subject("turn", {}, trunk)) == 1
