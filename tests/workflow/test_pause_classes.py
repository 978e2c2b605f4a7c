"""Hit density from pauses by class: against plain sums over everything told, and what each class learns from which."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvpolicy.policy.model import Subject
from kvpolicy.request import Owner, Request
from kvpolicy.workflow import hazard
from kvpolicy.workflow.events import Event
from kvpolicy.workflow.hazard import EDGES, PRIOR, RECENCY, SETTLES, STEPS, WIDTHS, Hazard
from kvpolicy.workflow.state import RunState

ages = st.one_of(st.sampled_from([0.0, 0.25, 1.0, 2.0, 64.0, 2.0**17, 1e6]), st.floats(0.0, 3e5))


def told(*classes: Hazard, since: float = 0.0, until: float, ended: bool = True) -> None:
    for each in classes:
        if ended:
            each.ended(until)
        each.waited(since, until)
        each.told()


def naive_density(rows: list[list[tuple[float, float, bool]]], age: float) -> float:
    """rows: of the coarsest class first, each (since, until, ended), told in that order."""
    rates = list(RECENCY)
    for everything in rows:
        settled, due = 0, 1
        for number in range(1, len(everything) + 1):
            if number >= due:
                settled, due = number, number + 1 + number // SETTLES
        known = everything[:settled]
        for k in range(STEPS):
            end = math.inf if k == STEPS - 1 else EDGES[k + 1]
            returns = sum(ended and EDGES[k] <= until < end for _, until, ended in known)
            seconds = math.fsum(max(0.0, min(until, EDGES[k + 1]) - max(since, EDGES[k])) for since, until, _ in known)
            rates[k] = (returns + PRIOR * WIDTHS[k] * rates[k]) / (seconds + PRIOR * WIDTHS[k])
    first = max(k for k in range(STEPS) if EDGES[k] <= age)
    best = 0.0
    for last in range(first, STEPS):
        left, held = 1.0, 0.0
        for k in range(first, last + 1):
            held += left * (1.0 - math.exp(-rates[k] * WIDTHS[k])) / rates[k]
            left *= math.exp(-rates[k] * WIDTHS[k])
        best = max(best, (1.0 - left) / held)
    return best


@settings(max_examples=60)
@given(st.lists(st.tuples(ages, ages, st.booleans(), st.booleans(), ages), max_size=80))
def test_density_is_the_best_over_all_horizons_of_everything_told(pieces: list) -> None:
    """Two classes; every third piece is asked after, so that what is kept between readings is put to the test."""
    above = Hazard(None)
    fine = Hazard(above)
    rows: list[list[tuple[float, float, bool]]] = [[], []]
    for number, (one, other, ended, both, age) in enumerate(pieces):
        since, until = sorted((one, other))
        told(*((fine, above) if both else (above,)), since=since, until=until, ended=ended)
        rows[0].append((since, until, ended))
        if both:
            rows[1].append((since, until, ended))
        if number % 3 == 0:
            assert fine.density(age) == pytest.approx(naive_density(rows, age), rel=2e-3)
            assert above.density(age) == pytest.approx(naive_density(rows[:1], age), rel=2e-3)


def test_what_is_told_in_pieces_and_taken_back_leaves_the_same() -> None:
    whole, pieces = Hazard(None), Hazard(None)
    whole.waited(0.0, 37.5)
    for since, until in ((0.0, 1.0), (1.0, 2.0), (2.0, 3.3), (3.3, 37.5)):
        pieces.waited(since, until)
    assert pieces.at_risk == pytest.approx(whole.at_risk)
    pieces.waited(0.0, 20.0, -1.0)
    pieces.waited(0.0, 20.0)
    assert pieces.at_risk == pytest.approx(whole.at_risk)


def test_old_pauses_fade(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hazard, "FADES_AT", 200.0)
    changed, steady = Hazard(None), Hazard(None)
    for _ in range(190):
        told(changed, until=100.0)
    for _ in range(600):
        told(changed, until=3.0)
        told(steady, until=3.0)
    assert changed.count < 200.0
    assert changed.density(0.0) == pytest.approx(steady.density(0.0), rel=0.1)


# --- through the state of runs ----------------------------------------------------------------------------


class Users:
    """Requests of owners that take no time, on one clock."""

    def __init__(self) -> None:
        self.state = RunState()
        self.number = 0

    def ask(
        self,
        at: float,
        owner: Owner,
        tools: tuple[str, ...] = (),
        finished: bool | None = None,
        output_tokens: int | None = None,
    ) -> None:
        self.number += 1
        request = Request(f"r{self.number}", owner, 100, 16)
        self.state.arrive(request, at)
        self.state.touched(request.id, at)
        self.state.answer(request, at, tool_calls=tools, finished=finished, output_tokens=output_tokens)

    def density(self, owner: Owner) -> float | None:
        return self.state.read("hit_density", None, Subject("turn", {}, owner))


def teach(users: Users, at: float, pauses: int, tool_s: float, human_s: float, tenant: str = "t") -> float:
    """Sessions that come back after a tool, then after a human, again and again."""
    for number in range(pauses):
        owner = Owner(tenant, f"past{number // 10}")
        users.ask(at, owner, tools=("grep",))
        at += tool_s
        users.ask(at, owner, finished=True)
        at += human_s
    users.state.observe(Event(at, "session_end", {"tenant": tenant}))
    return at


def test_a_tool_comes_back_sooner_than_a_human_and_both_fall_with_the_time_waited() -> None:
    users = Users()
    at = teach(users, 0.0, 400, 4.0, 100.0)
    users.ask(at, Owner("t", "a"), tools=("grep",))
    users.ask(at, Owner("t", "b"), finished=True)
    tool, human = users.density(Owner("t", "a")), users.density(Owner("t", "b"))
    assert tool is not None and human is not None and tool > 5 * human
    users.state.advance(at + 40.0)
    later = users.density(Owner("t", "a"))
    assert later is not None and later < tool / 5
    waiting = users.density(Owner("t", "b"))
    assert waiting is not None and waiting > human  # 60 of the 100 s have passed


def test_an_owner_that_runs_has_no_pause_and_one_that_ended_has_no_future() -> None:
    users = Users()
    at = teach(users, 0.0, 5, 4.0, 100.0)
    owner = Owner("t", "a")
    assert users.density(owner) is None
    users.state.arrive(Request("now", owner, 100, 16), at)
    assert users.density(owner) is None
    users.state.answer(Request("now", owner, 100, 16), at, tool_calls=("grep",))
    assert users.density(owner) is not None
    users.state.observe(Event(at + 1.0, "session_end", {"session": "a"}))
    assert users.density(owner) == 0.0


def test_nothing_is_known_before_the_first_return_and_tenants_do_not_share() -> None:
    users = Users()
    users.ask(0.0, Owner("t", "a"), tools=("grep",))
    assert users.density(Owner("t", "a")) is None
    teach(users, 0.0, 20, 4.0, 100.0, tenant="other")
    assert users.density(Owner("t", "a")) is None


def test_pauses_that_stay_open_lower_the_density() -> None:
    users, lonely = Users(), Users()
    at = teach(users, 0.0, 40, 4.0, 100.0)
    teach(lonely, 0.0, 40, 4.0, 100.0)
    for number in range(40):
        users.ask(at, Owner("t", f"lost{number}"), finished=True)
    for each in (users, lonely):
        each.state.advance(at + 5_000.0)
        each.ask(at + 5_000.0, Owner("t", "a"), finished=True)
    lower, higher = users.density(Owner("t", "a")), lonely.density(Owner("t", "a"))
    assert lower is not None and higher is not None and lower < 0.7 * higher


def test_one_that_is_gone_counts_as_waiting_for_ever() -> None:
    users, other = Users(), Users()
    for each in (users, other):
        at = teach(each, 0.0, 40, 4.0, 100.0)
        for number in range(40):
            each.ask(at, Owner("t", f"lost{number}"), finished=True)
        each.state.advance(at + 3.0)
    for number in range(40):
        users.state.observe(Event(at + 3.0, "session_end", {"session": f"lost{number}"}))
    for each in (users, other):
        each.ask(at + 3.0, Owner("t", "a"), finished=True)
    lower, higher = users.density(Owner("t", "a")), other.density(Owner("t", "a"))
    assert lower is not None and higher is not None and lower < 0.7 * higher


def test_what_the_owner_did_before_and_whether_it_is_a_sub_agent_tell_classes_apart() -> None:
    users, at = Users(), 0.0
    quick, slow = Owner("t", "quick"), Owner("t", "slow")
    child = Owner("t", "quick", agent="x", branch="x1", parent="quick")
    for _ in range(60):
        users.ask(at, quick, tools=("grep",))
        users.ask(at, slow, tools=("grep",))
        users.ask(at + 0.5, child, tools=("grep",))
        at += 2.0
        users.ask(at, quick, tools=("grep",))
        at += 60.0
        users.ask(at, slow, tools=("grep",))
        users.state.observe(Event(at, "agent_end", {"session": "quick", "branch": "x1"}))
    a, b, c = map(users.density, (quick, slow, child))
    assert a is not None and b is not None and c == 0.0
    users.ask(at, child, tools=("grep",))
    c = users.density(child)
    assert c is not None and c < a  # its own kind never came back


def test_a_long_answer_is_another_class_than_a_short_one() -> None:
    users, at = Users(), 0.0
    short, long = Owner("t", "short"), Owner("t", "long")
    for number in range(80):
        users.ask(at, short, tools=("write",), output_tokens=50)
        users.ask(at, long, tools=("write",), output_tokens=5_000)
        at += 10.0
        users.ask(at, short, tools=("write",), output_tokens=50)
        at += 20.0 + number % 2
    users.ask(at, Owner("t", "a"), tools=("write",), output_tokens=60)
    users.ask(at, Owner("t", "b"), tools=("write",), output_tokens=2_000)
    one, other = users.density(Owner("t", "a")), users.density(Owner("t", "b"))
    assert one is not None and other is not None and one > 1.2 * other


def test_a_class_without_pauses_of_its_own_backs_off_to_the_coarser_one() -> None:
    users = Users()
    at = teach(users, 0.0, 60, 4.0, 100.0)
    new, known = Owner("t", "a"), Owner("t", "b")
    users.ask(at, new, tools=("never_seen",))
    users.ask(at, known, tools=("grep",))
    assert users.density(new) == pytest.approx(users.density(known), rel=0.3)


def test_an_answer_that_is_classified_later_changes_its_class() -> None:
    users, other = Users(), Users()
    for each in (users, other):
        at = teach(each, 0.0, 30, 4.0, 100.0)
    owner = Owner("t", "a")
    users.ask(at, owner)
    users.state.advance(at + 1.0)
    users.state.observe(Event(at + 1.0, "tool_call", {"session": "a", "tool": "grep"}))
    other.ask(at, owner, tools=("grep",))
    for each in (users, other):
        each.state.advance(at + 2.0)
    assert users.density(owner) == pytest.approx(other.density(owner), rel=0.02)
    for each in (users, other):
        each.ask(at + 4.0, owner, finished=True)
    assert users.density(owner) == pytest.approx(other.density(owner), rel=0.02)


def test_a_forgotten_owner_leaves_no_open_pause_behind() -> None:
    users = Users()
    for number in range(300):
        owner = Owner("t", f"s{number}")
        users.ask(float(number), owner, finished=True)
        users.state.forget(owner)
    assert len(users.state.learned.pauses._looks) < 100
