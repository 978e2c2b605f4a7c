"""Whom an event means: a naive scan of all owners against the index, and the cases the language names."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvpolicy.faults import InputFault
from kvpolicy.request import Owner, Request
from kvpolicy.workflow.events import FIELDS, Event, event_from_row, events_from_rows
from kvpolicy.workflow.state import RunState

_some = st.sampled_from((None, "a", "b"))
_owners = st.builds(Owner, tenant=st.sampled_from(("t", "u")), session=_some, run=_some, agent=_some, branch=_some)


def known(*owners: Owner) -> RunState:
    state = RunState()
    for owner in owners:
        state.know(owner)
    return state


@settings(max_examples=150)
@given(
    st.lists(_owners, max_size=8, unique=True),
    st.fixed_dictionaries(
        {"tenant": st.sampled_from(("t", "u"))}, optional=dict.fromkeys(("session", "run", "agent", "branch"), _some)
    ),
)
def test_an_event_means_every_owner_that_agrees_with_all_it_states(owners: list[Owner], stated: dict) -> None:
    state = known(*owners)
    expected = [o for o in owners if all(getattr(o, field) == value for field, value in stated.items())]
    assert list(state.observe(Event(1.0, "compact", stated))) == expected


def test_an_event_read_from_an_answer_means_its_owner_alone() -> None:
    parent, child = Owner("t", "s"), Owner("t", "s", agent="helper")
    state = known(parent, child)
    assert state.observe(Event(1.0, "turn_end"), child) == (child,)
    assert (state.phase(parent), state.phase(child)) == ("idle", "human_pause")


def test_null_says_that_the_owner_has_none() -> None:
    trunk, branch = Owner("t", "s"), Owner("t", "s", branch="b1")
    state = known(trunk, branch)
    assert state.observe(Event(1.0, "pause", {"session": "s", "branch": None})) == (trunk,)
    assert state.observe(Event(1.0, "pause", {"session": "s"})) == (trunk, branch)


def test_branch_events_cover_descendants_and_nobody_else() -> None:
    trunk, other = Owner("t", "s"), Owner("t", "s", branch="b2", parent="s")
    branch = Owner("t", "s", branch="b1", parent="s")
    leaf = Owner("t", "s", branch="b1.1", parent="b1")
    helper = Owner("t", "h", agent="helper", parent="b1.1")  # a sub-agent with a session of its own
    stranger = Owner("t", "s9", branch="b1.1", parent="b1")  # another session's branch of the same name
    state = known(trunk, branch, other, leaf, helper, stranger)
    pruned = state.observe(Event(1.0, "branch_pruned", {"tenant": "t", "session": "s", "branch": "b1"}))
    assert pruned == (branch, leaf, helper)
    assert state.attributes(leaf)["status"] == "pruned"
    assert state.attributes(other)["status"] == "running"
    assert state.phase(trunk) == "idle"


def test_a_childs_events_do_not_reach_its_parent() -> None:
    parent, child = Owner("t", "s"), Owner("t", "c", parent="s")
    state = known(parent, child)
    assert state.observe(Event(1.0, "session_end", {"session": "c"})) == (child,)
    assert state.observe(Event(1.0, "session_end", {"session": "s"})) == (parent,)


def test_an_event_of_a_call_means_those_that_have_it_open() -> None:
    one, two = Owner("t", "s1"), Owner("t", "s2")
    state = known(one, two)
    state.observe(Event(1.0, "tool_call", {"session": "s1", "tool": "grep", "call": "c1"}))
    state.observe(Event(1.0, "tool_call", {"session": "s2", "tool": "grep", "call": "c2"}))
    assert state.observe(Event(2.0, "tool_result", {"call": "c1"})) == (one,)
    assert state.observe(Event(3.0, "tool_result", {"call": "c1"})) == ()  # delivered twice
    assert (state.phase(one), state.phase(two)) == ("running", "tool_pause")


def test_a_call_told_without_an_id_may_end_with_one_within_the_other_fields() -> None:
    one, two = Owner("t", "s1"), Owner("t", "s2")
    state = known(one, two)
    for session in ("s1", "s2"):
        state.observe(Event(1.0, "tool_call", {"tenant": "t", "session": session, "tool": "grep"}))
    assert state.observe(Event(2.0, "tool_result", {"tenant": "t", "call": "c1"})) == ()  # it could be anybody's
    assert state.observe(Event(3.0, "tool_result", {"tenant": "t", "session": "s1", "call": "c1"})) == (one,)
    assert (state.phase(one), state.phase(two)) == ("running", "tool_pause")


def test_a_node_is_the_one_an_owner_is_at() -> None:
    planner, writer = Owner("t", "s", agent="planner"), Owner("t", "s", agent="writer")
    free = Owner("t", "f")
    state = known(planner, writer, free)
    assert state.observe(Event(1.0, "step_start", {"session": "s", "node": "writer"})) == (writer,)
    assert state.observe(Event(1.0, "step_start", {"session": "f", "node": "judge"})) == (free,)
    assert state.observe(Event(2.0, "step_end", {"node": "judge"})) == (free,)


def test_without_a_tenant_an_event_speaks_of_all_with_one_of_that_alone() -> None:
    ours, theirs = Owner("t", "s"), Owner("u", "s")
    state = known(ours, theirs)
    assert state.observe(Event(1.0, "turn_end", {"tenant": "u", "session": "s"})) == (theirs,)
    assert state.observe(Event(1.0, "turn_end", {"session": "s"})) == (ours, theirs)


def test_an_event_that_comes_before_its_owner_waits_for_it() -> None:
    state = RunState()
    assert state.observe(Event(1.0, "branch_scored", {"session": "s", "branch": "b", "score": 0.7, "rank": 2})) == ()
    assert state.observe(Event(2.0, "tool_call", {"session": "s", "branch": "b", "tool": "grep", "call": "c"})) == ()
    owner = Owner("t", "s", branch="b")
    state.know(owner)
    assert state.phase(owner) == "tool_pause"
    assert state.attributes(owner) == {"branch": "b", "status": "running", "score": 0.7, "rank": 2}


def test_a_span_reads_the_branch_it_is_labelled_with() -> None:
    joiner, branch = Owner("t", "s"), Owner("t", "s", branch="b1")
    state = known(joiner, branch)
    state.observe(Event(1.0, "branch_done", {"session": "s", "branch": "b1", "score": 0.9}))
    assert state.attributes(joiner) == {}
    assert state.attributes(joiner, "b1") == {"branch": "b1", "status": "done", "score": 0.9}
    assert state.attributes(joiner, "b2")["status"] == "running"


def test_a_forgotten_owner_leaves_nothing_behind() -> None:
    state = RunState()
    for number in range(50):
        owner = Owner("t", f"s{number}", agent="a")
        request = Request(f"r{number}", owner, 10, 16)
        state.arrive(request, float(number))
        state.answer(request, float(number), tool_calls=[("grep", f"c{number}")])
    assert len(state.owners()) == 50
    assert len(state.reap(30.0)) == 20  # the clock is at 49
    for owner in state.owners():
        state.forget(owner)
    assert state.observe(Event(60.0, "tool_result", {"call": "c49"})) == ()
    assert state.observe(Event(60.0, "turn_end", {"tenant": "t"})) == ()
    assert state.owners() == ()


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (
            {"event": "session_end", "sesion": "s1"},
            r"session_end: there is no field 'sesion'; did you mean `session`\?",
        ),
        ({"event": "tool_call", "toool": "grep"}, r"tool_call: there is no field 'toool'; did you mean `tool`\?"),
        ({"event": "turn_end", "xyzzy": 1}, "turn_end: there is no field 'xyzzy'; the fields of an event are tenant, "),
    ],
)
def test_a_field_that_no_event_has_is_refused(row: dict[str, object], said: str) -> None:
    """It would state nothing, and the event would address every owner."""
    with pytest.raises(InputFault, match=said):
        event_from_row(row, 1.0)
    with pytest.raises(InputFault, match=rf"^events\[1\]: {said}"):
        events_from_rows([{"event": "turn_end", "at": 0.0}, {**row, "at": 1.0}])


def test_every_field_an_event_may_state_is_taken() -> None:
    row = {"event": "branch_start", "eta": "3s", **{name: "x" for name in FIELDS if name != "eta"}}
    assert set(event_from_row(row, 1.0).attributes) == set(FIELDS)
