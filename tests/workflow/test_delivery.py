"""Events that come twice, late or in another order end in the same state, where their times say what the order was."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st

from kvpolicy import words
from kvpolicy.policy.model import NEVER, EventPattern, IntervalPattern, Subject
from kvpolicy.request import Owner, Request
from kvpolicy.workflow.events import Event
from kvpolicy.workflow.graph import Graph
from kvpolicy.workflow.position import Position
from kvpolicy.workflow.run import REMEMBERED
from kvpolicy.workflow.state import RunState

RESEARCH = Graph.build(
    {
        "nodes": ["plan", "search", "read", {"name": "judge", "role": "barrier"}, "write", "check"],
        "edges": [
            {"from": "plan", "to": "search", "times": "n"},
            ["search", "judge"],
            ["plan", "read"],
            ["read", "judge"],
            ["judge", "write"],
            ["write", "check"],
        ],
        "loops": [{"from": "check", "to": "write", "at_most": 2}, {"from": "judge", "to": "read", "at_most": 1}],
    }
)
WHOSE = {"tenant": "t", "session": "s"}
OWNER = Owner("t", "s")


def walk(chance: random.Random, steps: int) -> list[Event]:
    """A run of the graph as somebody would tell it: times that differ, instances of the fan-out with branches."""
    position, told, at = Position(RESEARCH), [], 0.0
    open_steps: list[tuple[str, str | None]] = []
    for number in range(steps):
        at += chance.choice((0.5, 1.0, 3.0))
        due = [n for n in RESEARCH.names if position.steps(n) in (0, 1) and (not position.runs(n) or n == "search")]
        if open_steps and (not due or chance.random() < 0.5):
            node, branch = open_steps.pop(chance.randrange(len(open_steps)))
            if branch is not None and chance.random() < 0.2:
                name = "branch_pruned"
                position.lost(node)
            else:
                name = "step_end"
                position.end(node)
        elif due:
            node, branch, name = chance.choice(due), None, "step_start"
            if node == "search":
                branch = f"b{number}"
            open_steps.append((node, branch))
            position.start(node)
        else:
            break
        told.append(Event(at, name, {**WHOSE, "node": node, **({"branch": branch} if branch else {}), "n": 3}))
    return told


def delivered(told: list[Event], chance: random.Random, reach: int) -> list[Event]:
    """The same with some twice, each at most `reach` places late."""
    twice = [*enumerate(told), *((i, e) for i, e in enumerate(told) if chance.random() < 0.3)]
    return [event for _, event in sorted(twice, key=lambda row: (row[0] + chance.uniform(0, reach), row[0]))]


def run_of(events: Iterable[Event]) -> RunState:
    state = RunState(graph=RESEARCH)
    state.know(OWNER)
    for event in events:
        state.observe(event)
    return state


def seen(state: RunState) -> tuple:
    standing = state.runs.standing(OWNER)
    assert standing is not None and standing.position is not None
    times = state.learned.times("t")
    learned = {node: series.count for node, series in times.node.items()}
    return standing.position.all_steps(), standing.started, standing.position.taken, learned


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 60), st.integers(0, 5))
def test_steps_told_late_or_twice_count_once_and_in_their_place(seed: int, steps: int, reach: int) -> None:
    chance = random.Random(seed)
    told = walk(chance, steps)
    assert seen(run_of(delivered(told, chance, reach))) == seen(run_of(told))


def test_a_step_that_is_too_late_changes_nothing() -> None:
    names = ("step_start", "step_end") * 100
    times = [Event(i / 2 + 1, name, {**WHOSE, "node": "write"}) for i, name in enumerate(names)]
    state, other = run_of(times), run_of([*times, Event(2.25, "step_start", {**WHOSE, "node": "check"})])
    assert seen(state) == seen(other)


_PHASE_EVENTS = ("turn_start", "turn_end", "step_start", "step_end", "pause", "resume", "session_end", "agent_start")


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 12))
def test_an_owner_is_where_the_latest_events_lead_in_whatever_order_they_come(seed: int, count: int) -> None:
    """Calls have ids. After an end only what begins a new life is told, as the rest would be of the old one."""
    chance = random.Random(seed)
    told: list[Event] = []
    open_calls: list[str] = []
    ended = False
    for number in range(count):
        name = chance.choice(("tool_call", "tool_call", "tool_result", "tool_result", *_PHASE_EVENTS))
        attributes: dict[str, object] = dict(WHOSE)
        if ended and name != "resume":
            continue
        if name == "tool_call":
            attributes |= {"tool": "grep", "call": f"c{number}"}
            open_calls.append(f"c{number}")
        elif name == "tool_result":
            if not open_calls:
                continue
            attributes |= {"tool": "grep", "call": open_calls.pop(chance.randrange(len(open_calls)))}
        ended = words.PHASE_AFTER[name] == "ended"
        if ended:
            open_calls = []
        told.append(Event(10.0 + number, name, attributes))
    if any(words.PHASE_AFTER[event.name] == "ended" for event in told):
        told = [e for e in told if not e.name.startswith("tool")]  # a call of the life that is over
    other = [*told, *(event for event in told if chance.random() < 0.3)]
    chance.shuffle(other)
    one, two = run_of(told), run_of(other)
    assert one.phase(OWNER) == two.phase(OWNER), (told, other)
    assert _calls(one) == _calls(two)


def _calls(state: RunState) -> set[str | None]:
    return {call.id for call in state._owners.lives[OWNER].phases.calls}


@given(st.lists(st.tuples(st.sampled_from(("branch_start", "branch_scored", "branch_done", "branch_pruned", "resume")),
                          st.sampled_from((None, 0.25, 0.5, 1.0))), max_size=8), st.randoms())  # fmt: skip
def test_the_latest_word_on_a_branch_counts(words_on_it: list, chance: random.Random) -> None:
    told = [
        Event(float(at), name, {**WHOSE, "branch": "b", **({} if score is None else {"score": score})})
        for at, (name, score) in enumerate(words_on_it)
    ]
    other = [*told, *told]
    chance.shuffle(other)
    assert run_of(told).attributes(OWNER, "b") == run_of(other).attributes(OWNER, "b")


def test_a_result_that_overtook_its_call_closes_it_and_is_learned() -> None:
    state = run_of([])
    assert state.observe(Event(5.0, "tool_result", {**WHOSE, "call": "c1"})) == ()
    state.observe(Event(3.0, "tool_call", {**WHOSE, "tool": "grep", "call": "c1"}))
    assert state.phase(OWNER) == "running"
    assert state.learned.times("t").tool["grep"].mean() == 2.0
    state.observe(Event(6.0, "tool_call", {**WHOSE, "tool": "grep", "call": "c2"}))
    assert state.phase(OWNER) == "tool_pause"


def test_pruned_lost_and_back_again() -> None:
    judge, search = Subject("turn", {"node": "judge"}, OWNER), Subject("turn", {"node": "search"}, OWNER)
    state = run_of(
        Event(float(at), name, {**WHOSE, "node": node, "n": 2, **({"branch": branch} if branch else {})})
        for at, (name, node, branch) in enumerate(
            [
                ("step_start", "plan", None),
                ("step_end", "plan", None),
                ("step_start", "read", None),
                ("step_end", "read", None),
                ("step_start", "search", "b1"),
                ("step_start", "search", "b2"),
                ("step_end", "search", "b1"),
            ]
        )
    )
    assert state.read("steps_to_next_use", None, search) == 0
    for _ in range(2):  # told twice
        state.observe(Event(10.0, "branch_pruned", {**WHOSE, "branch": "b2"}))
        assert state.read("steps_to_next_use", None, search) == NEVER
        assert state.read("steps_to_next_use", None, judge) == 1
    state.observe(Event(11.0, "branch_pruned", {**WHOSE, "branch": "b1"}))  # it has arrived: nothing to wait for less
    state.observe(Event(12.0, "resume", {**WHOSE, "branch": "b2"}))  # the search returns to it
    assert state.read("steps_to_next_use", None, search) == 0
    state.observe(Event(13.0, "step_end", {**WHOSE, "node": "search", "branch": "b2"}))
    assert state.read("steps_to_next_use", None, search) == NEVER
    for _ in range(2):  # a barrier reported twice is passed once
        state.observe(Event(14.0, "barrier", {**WHOSE, "node": "judge"}))
    state.observe(Event(15.0, "step_start", {**WHOSE, "node": "write"}))
    state.observe(Event(16.0, "step_end", {**WHOSE, "node": "write"}))
    assert state.read("steps_to_next_use", None, Subject("turn", {"node": "write"}, OWNER)) == 2  # by the loop


def test_a_workflow_that_is_over_needs_no_step_and_can_begin_again() -> None:
    write = Subject("turn", {"node": "write"}, OWNER)
    state = run_of([Event(1.0, "step_start", {**WHOSE, "node": "plan"})])
    assert state.read("steps_to_next_use", None, write) == 3
    state.observe(Event(5.0, "workflow_end", dict(WHOSE)))
    assert state.read("steps_to_next_use", None, write) == NEVER
    state.observe(Event(4.0, "step_end", {**WHOSE, "node": "plan"}))  # late: it is of the run that is over
    assert state.read("steps_to_next_use", None, write) == NEVER
    state.observe(Event(9.0, "step_start", {**WHOSE, "node": "plan"}))
    assert state.read("steps_to_next_use", None, write) == 3


def test_the_same_request_sent_again_is_one_turn() -> None:
    state = RunState()
    request = Request("r", OWNER, 10, 16)
    state.arrive(request, 0.0)
    state.arrive(request, 30.0)
    assert state._owners.lives[OWNER].turns == 1
    state.answer(request, 31.0, finished=True)
    state.cancel("r", 32.0)  # too late
    assert state.phase(OWNER) == "human_pause"


def test_a_run_keeps_a_bounded_past() -> None:
    patterns = [IntervalPattern(EventPattern("step_start"), EventPattern("step_end"))]
    sizes = []
    for rounds in (200, 2_000):
        state = RunState(patterns, RESEARCH)
        state.know(OWNER)
        for number in range(rounds):
            for name in ("step_start", "step_end"):
                node = "search" if number % 2 else "write"
                branch = {"branch": f"b{number}"} if number % 2 else {}
                state.observe(Event(float(number), name, {**WHOSE, "node": node, **branch}))
        (run,) = state.runs.held.active.values()
        assert len(run._log) <= 2 * REMEMBERED
        sizes.append(len(pickle.dumps(run)))
    assert sizes[1] < 2 * sizes[0] + 200_000  # names of branches: 4096 of them are kept
