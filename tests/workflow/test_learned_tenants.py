"""What one tenant teaches is read for no other, and no tenant can push out what another has taught."""

from __future__ import annotations

import json
import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from kvpolicy.policy.model import EventPattern, Subject
from kvpolicy.request import Owner, Request
from kvpolicy.workflow.classes import MOST_TOOLS, Classes
from kvpolicy.workflow.durations import FEW
from kvpolicy.workflow.events import Event
from kvpolicy.workflow.learned_times import MOST_NAMES, TOOL
from kvpolicy.workflow.state import RunState

QUESTIONS: tuple[tuple[str, object], ...] = (
    *((function, f"{kind}.duration") for function in ("mean", "p50", "p95", "count") for kind in ("tool", "tools")),
    ("p90", "human.duration"),
    ("p90", "step.duration"),
    ("next_use", None),
    ("return_probability", 30.0),
    ("hit_density", None),
    ("best_hold", None),
    ("eta", EventPattern("tool_result")),
)
moves = st.lists(
    st.tuples(
        st.sampled_from(("a", "b")),  # tenant
        st.sampled_from(("s1", "s2")),
        st.sampled_from(("call", "done", "end", "forget")),
        st.sampled_from(("grep", "build")),
        st.sampled_from((0.5, 4.0, 90.0)),
    ),
    max_size=25,
)


def play(rows: list, tenants: tuple[str, ...]) -> RunState:
    """The moves of these tenants alone, at the times they have among all."""
    state, now = RunState(), 0.0
    for number, (tenant, session, what, tool, pause) in enumerate(rows):
        now += pause
        state.advance(now)
        if tenant not in tenants:
            continue
        owner = Owner(tenant, session)
        if what == "end":
            state.observe(Event(now, "session_end", {"tenant": tenant, "session": session}))
        elif what == "forget":
            state.forget(owner)
        else:
            request = Request(f"r{number}", owner, 100, 16)
            state.arrive(request, now)
            state.touched(request.id, now)
            state.answer(request, now, tool_calls=(tool,) if what == "call" else (), finished=what == "done")
    state.advance(now + 10.0)
    return state


@given(moves)
def test_answers_for_one_tenant_are_those_of_a_state_that_never_saw_another(rows: list) -> None:
    together, alone = play(rows, ("a", "b")), play(rows, ("a",))
    for session in ("s1", "s2", "new"):
        subject = Subject("turn", {"tokens": 100}, Owner("a", session))
        for function, argument in QUESTIONS:
            assert together.read(function, argument, subject) == alone.read(function, argument, subject), function
    assert together.learned.export("a") == alone.learned.export("a")


def test_a_tenant_that_invents_tools_pushes_out_its_own_alone() -> None:
    state = RunState()
    state.learned.times("a").over(TOOL, "grep", 0.0, 1.0)
    state.learned.times("b").over(TOOL, "grep", 0.0, 1.0)
    for number in range(MOST_NAMES):
        state.learned.times("b").over(TOOL, f"invented{number}", 0.0, 2.0)
    assert "grep" in state.learned.times("a").tool
    assert "grep" not in state.learned.times("b").tool
    assert len(state.learned.times("b").tool) == MOST_NAMES


def test_classes_told_apart_by_tools_are_bounded_and_the_coarser_ones_stay() -> None:
    classes = Classes()
    everything, coarse = classes.everything, classes.named(["tool_pause"])
    for number in range(3 * MOST_TOOLS):
        classes.named(["tool_pause"], (f"invented{number}",))
    assert classes.everything is everything and classes.named(["tool_pause"]) is coarse
    assert sum(1 for _ in classes.rows()) == MOST_TOOLS + 2
    kept = classes.named(["tool_pause"], (f"invented{2 * MOST_TOOLS}",))
    classes.named(["tool_pause"], ("one more",))  # the longest unused leaves, and that one was used just now
    assert classes.named(["tool_pause"], (f"invented{2 * MOST_TOOLS}",)) is kept


def test_the_sketch_s_library_is_loaded_when_it_is_needed() -> None:
    program = (
        "import json, sys\nfrom kvpolicy.workflow.durations import Series\n"
        "series, loaded = Series(), []\n"
        f"for number in range({FEW + 1}):\n"
        "    loaded.append('ddsketch' in sys.modules)\n    series.add(float(number))\n"
        "print(json.dumps([any(loaded), 'ddsketch' in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [False, True]
