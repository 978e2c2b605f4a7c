"""Learned times survive export and load; what does not fit is refused and changes nothing."""

from __future__ import annotations

import copy
import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvpolicy.faults import InputFault
from kvpolicy.policy.model import Subject
from kvpolicy.request import Owner, Request
from kvpolicy.workflow.durations import ENDED, FEW, RETURNED, UNKNOWN
from kvpolicy.workflow.events import Event
from kvpolicy.workflow.hazard import Hazard
from kvpolicy.workflow.keep import VERSION
from kvpolicy.workflow.learned import Learned
from kvpolicy.workflow.learned_times import HUMAN, STEP, TOOL, TOOLS
from kvpolicy.workflow.state import RunState
from kvpolicy.workflow.trust import BEGINS
from tests.test_imports import imports, modules

durations = st.lists(
    st.tuples(st.floats(0, 1e6), st.floats(0, 3e5), st.sampled_from((RETURNED, ENDED, UNKNOWN))), max_size=30
)


def there_and_back(learned: Learned, into: Learned, tenant: str = "t") -> dict[str, Any]:
    document = learned.export(tenant)
    into.load(json.loads(json.dumps(document)))
    assert into.export(tenant) == document
    return document


@given(st.dictionaries(st.text(max_size=5), durations, max_size=4), durations, st.sampled_from((1, FEW // 8)))
def test_what_is_exported_is_learned_again(tools: dict[str, list], human: list, times_over: int) -> None:
    """`times_over`: so often that some of it is in sketches."""
    learned, other = Learned(), Learned()
    times = learned.times("t")
    for tool, rows in tools.items():
        for seconds, at, way in rows * times_over:
            times.over(TOOL, tool, at - seconds, at, way)
    for seconds, at, way in human:
        times.human.add(seconds, at, way)
    there_and_back(learned, other)
    again = other.times("t")
    for kind, key in ((HUMAN, None), *((TOOL, tool) for tool in tools)):
        one, two = times.best_known(kind, key), again.best_known(kind, key)
        assert (one.sorted, one.mean(), one.count, one.exact) == (two.sorted, two.mean(), two.count, two.exact)
        assert one.return_probability(5.0, 10.0) == two.return_probability(5.0, 10.0)
        assert one.remaining(7.0) == two.remaining(7.0)
        assert one.best_bound(100.0) == two.best_bound(100.0)
        one.add(3.0, 4e5)  # and they fade alike
        two.add(3.0, 4e5)
        assert one.read("p90") == two.read("p90")


@pytest.mark.parametrize(("age", "sign"), [(8.0, 1), (8e4, -1)])
def test_how_far_classes_are_believed_is_learned_again(age: float, sign: int) -> None:
    """Also where they have foretold right, or wrong, for as long as there is."""
    learned, other = Learned(), Learned()
    trust, hazard = learned.pauses.classes("t").trust, Hazard(None)
    for _ in range(200):
        hazard.ended(8.0)
        hazard.waited(0.0, 8.0)
        hazard.told()
    for _ in range(5000):
        trust.returned(hazard, age)
    assert math.copysign(1, trust.lead - BEGINS) == sign
    there_and_back(learned, other)
    assert other.pauses.classes("t").trust.lead == trust.lead


def run_state(sessions: int, tool_s: float) -> RunState:
    """Sessions of a few calls each, all at once."""
    state, number = RunState(), 0
    for turn in range(6):
        for session in range(sessions):
            owner, at = Owner("t", f"s{session}"), turn * tool_s + session * 0.01
            number += 1
            request = Request(f"r{number}", owner, 100, 16)
            state.arrive(request, at)
            state.answer(request, at, tool_calls=("grep",), output_tokens=100)
    state.observe(Event(60.0, "session_end", {"tenant": "t"}))
    return state


def test_classes_of_pauses_and_the_length_of_sessions_are_in_it() -> None:
    state, again = run_state(30, 4.0), RunState()
    document = there_and_back(state.learned, again.learned)
    assert len(document["pauses"]) > 5 and document["pauses"][0]["count"] == 150.0
    assert again.learned.memoryfulness("t").eta() == state.learned.memoryfulness("t").eta()
    owner = Owner("t", "new")
    for each in (state, again):
        request = Request("r", owner, 100, 16)
        each.arrive(request, 100.0)
        each.answer(request, 100.0, tool_calls=("grep",), output_tokens=100)
        each.advance(102.0)
    subject = Subject("turn", {}, owner)
    density = again.read("hit_density", None, subject)
    assert density == pytest.approx(state.read("hit_density", None, subject), rel=0.05)
    assert density is not None and density > 0.1


def test_a_call_that_is_open_while_a_document_is_loaded_is_learned_from_when_it_returns() -> None:
    state = run_state(3, 4.0)
    owner = Owner("t", "open")
    request = Request("r", owner, 100, 16)
    state.arrive(request, 100.0)
    state.answer(request, 100.0, tool_calls=("grep",))
    state.learned.load(state.learned.export("t"))
    grep = state.learned.times("t").tool["grep"]
    assert grep.return_probability(0.0, 5.0, now=110.0) < 1.0  # it waits for ten seconds already
    count = grep.count
    state.arrive(Request("next", owner, 100, 16), 111.0)
    assert grep.count == count + 1 and grep.sorted[-1] == 11.0
    assert grep._open == []


def document() -> dict[str, Any]:
    learned = Learned()
    learned.times("t").over(TOOL, "grep", 0.0, 1.0)
    learned.pauses.classes("t").named(["tool_pause"], ("grep",)).waited(0.0, 3.0)
    return learned.export("t")


def row(**change: Any) -> dict[str, Any]:
    return {**document()["human"], **change}


def pauses(**change: Any) -> dict[str, Any]:
    return {"pauses": [{**document()["pauses"][-1], **change}]}


HUGE = 10**5000


def sketches(bins: dict[str, float]) -> dict[str, Any]:
    none = {"none": 0.0, "bins": {}}
    return {"returned": {"none": 0.0, "bins": bins}, "never": none, "unknown": none}


@pytest.mark.parametrize(
    "change",
    [
        {"version": VERSION + 1},
        {"believed": None},
        {"believed": 1e300},
        {"believed": float("nan")},
        {"version": VERSION - 1},
        {"tenant": None},
        {"tool": []},
        {"tool": {"grep": 5}},
        {"tool": {f"t{n}": row() for n in range(1025)}},
        {"human": None},
        {"human": {"returned": [[1.0, 1.0]]}},
        {"human": row(returned=[[-1.0, 1.0]])},
        {"human": row(returned=[[math.nan, 1.0]])},
        {"human": row(returned=[[True, 1.0]])},
        {"human": row(returned=[["1", 1.0]])},
        {"human": row(returned=[[1.0, 0.0]])},
        {"human": row(returned=[[1.0]])},
        {"human": row(began="now")},
        {"human": row(halved=-1)},
        {"human": row(exact=False)},
        {"human": row(exact=False, returned={"none": 0.0, "bins": {"x": 1.0}}, never={}, unknown={})},
        {"step": row(returned=[[1.0, 1.0]] * (FEW + 1))},
        {"sessions": [0.0]},
        {"sessions": [0.0] * 5 + [math.inf]},
        {"sessions": [1e200] * 6},
        {"version": HUGE},
        {"tool": {HUGE: row()}},
        {"human": row(returned=[[HUGE, 1.0]])},
        {"human": row(returned=[[1e308, 1.0], [1e308, 1.0]])},
        {"human": row(returned=[[1.0, 5e-324]])},
        {"human": row(returned=[HUGE])},
        {"human": row(began=HUGE)},
        {"human": row(began=-HUGE)},
        {"human": row(halved=HUGE)},
        {"human": row(exact=False, **sketches({"9" * 5000: 1.0}))},
        {"human": row(exact=False, **sketches({"²": 1.0}))},
        {"human": row(exact=False, **sketches({"1": 1e308}))},
        {"human": row(exact=False, **sketches({str(n): 1000.0 for n in range(9)}))},
        {"pauses": None},
        {"pauses": [1]},
        pauses(**{"class": ["a"] * 6}),
        pauses(**{"class": [1.5]}),
        pauses(tools=[[]]),
        pauses(told=-1),
        pauses(told=HUGE),
        pauses(**{"class": [HUGE]}),
        pauses(count=HUGE),
        pauses(returns={"9" * 5000: 1.0}),
        pauses(returns={"0": 1e308}),
        pauses(at_risk={"0": 1e308}),
        pauses(count=None),
        pauses(returns={"1000": 1.0}),
        pauses(at_risk={"0": -1.0}),
        {"pauses": [{**document()["pauses"][-1], "tools": [f"t{n}"]} for n in range(1025)]},
    ],
)
def test_one_that_does_not_fit_changes_nothing(change: dict[str, Any]) -> None:
    learned = Learned()
    learned.times("t").over(TOOL, "grep", 0.0, 7.0)
    before = learned.export("t")
    with pytest.raises(InputFault) as fault:
        learned.load({**document(), **change})
    assert len(str(fault.value)) < 400
    assert learned.export("t") == before


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where something stands in a document."""
    rows = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, each in rows for place in places(each, (*path, key)))]


def full() -> dict[str, Any]:
    """A document with exact and sketched durations, and classes of pauses."""
    state = run_state(5, 4.0)
    for number in range(FEW + 1):
        state.learned.times("t").human.add(float(number), float(number), (RETURNED, ENDED, UNKNOWN)[number % 3])
    made: dict[str, Any] = json.loads(json.dumps(state.learned.export("t")))
    made["human"]["unknown"]["bins"] = dict(list(made["human"]["unknown"]["bins"].items())[:3])
    return made


FULL = full()
PLACES = places(FULL)[1:]
damage = st.one_of(
    st.sampled_from(
        [HUGE, -HUGE, 10**400, 1e308, -1e308, 5e-324, math.inf, math.nan, 1e15, True, None, "²", "", [], {}]
    ),
    st.floats(),
    st.integers(-10, 10_000),
)


@settings(max_examples=150)
@given(st.lists(st.tuples(st.sampled_from(PLACES), damage), min_size=1, max_size=4), st.booleans())
def test_a_damaged_document_is_refused_or_can_be_reckoned_with(rows: list, as_key: bool) -> None:
    broken = copy.deepcopy(FULL)
    for (*path, last), value in rows:
        inner = broken
        try:
            for key in path:
                inner = inner[key]
            if as_key and isinstance(inner, dict):
                inner[str(value) if isinstance(value, float) else value] = inner.pop(last)
            else:
                inner[last] = value
        except (TypeError, KeyError, IndexError, ValueError):
            pass  # what stood there is gone already, or no key
    learned = Learned()
    try:
        learned.load(broken, "t")
    except InputFault:
        assert learned.tenants() == ()
        return
    times = learned.times("t")
    for series in (times.human, times.tools, times.step, *times.tool.values(), *times.node.values()):
        for statistic in ("mean", "p50", "p90", "p95", "count"):
            assert math.isfinite(series.read(statistic) or 0.0)
        for waited in (0.0, 5.0, 1e6):
            assert 0.0 <= (series.return_probability(waited, 10.0, 1e6) or 0.0) <= 1.0
            assert not math.isnan(series.remaining(waited, 1e6) or 0.0)
        assert math.isfinite(series.best_bound(100.0))
        series.add(1.0, 1e6)
    for _, _, hazard in learned.pauses.classes("t").rows():
        assert all(math.isfinite(hazard.density(age)) for age in (0.0, 10.0, 1e9))
    assert 0.0 <= learned.memoryfulness("t").eta() < math.inf
    there_and_back(learned, Learned())


def test_an_export_makes_no_tenant() -> None:
    for learned in (Learned(), Learned(prior=document())):
        fresh = learned.export("nobody")
        assert learned.tenants() == ()
        learned.times("nobody"), learned.memoryfulness("nobody"), learned.pauses.classes("nobody")
        assert learned.export("nobody") == fresh


def test_another_tenant_may_take_it_and_reset_forgets_one_tenant() -> None:
    learned = Learned()
    learned.load(document())
    learned.load(document(), "other")
    learned.reset("t")
    assert learned.export("t") == Learned().export("t")
    assert learned.times("other").tools.sorted == [1.0]
    assert learned.tenants() == ("other", "t")


def test_a_new_tenant_begins_with_nothing_unless_a_prior_is_configured() -> None:
    learned = Learned(prior=document())
    assert next(learned.times("new").of(TOOLS, iter(()))).sorted == [1.0]
    assert learned.pauses.classes("new").named(["tool_pause"], ("grep",)).at_risk[0] == 0.25
    learned.times("new").over(TOOL, "grep", 0.0, 9.0)
    assert learned.times("newer").tools.sorted == [1.0]  # what a tenant adds stays with it
    plain = Learned()
    plain.load(document(), "old")
    assert plain.times("new").remaining(TOOL, "grep", 0.0) is None
    assert plain.times("new").remaining(STEP, None, 0.0) is None
    with pytest.raises(InputFault):
        Learned(prior={**document(), "version": 0})


def test_a_document_is_read_and_written_without_those_who_keep_it() -> None:
    """Whichever of the two is read first, the other is no riddle: imports in functions count as well."""
    name = "kvpolicy.workflow.keep"
    assert "kvpolicy.workflow.learned" not in set(imports(name, modules()[name]))
