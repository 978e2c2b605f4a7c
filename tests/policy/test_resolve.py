"""Values, limits, graces and clocks of single policies: the directed cases beside the comparison at random."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from kvpolicy.directive import Retention, TierRung, Ttl
from kvpolicy.faults import PolicyFault
from kvpolicy.policy.compile import compile
from kvpolicy.policy.model import NEVER, Opening, Subject
from kvpolicy.policy.policy import Policy
from kvpolicy.request import Owner
from tests.policy.reference import World
from tests.policy.strategies import file_set


def policy(text: str) -> Policy:
    return compile(file_set(text.split("\n")))


def span(kind: str = "turn", **attributes: object) -> Subject:
    return Subject(kind, attributes, Owner())


def value(text: str, name: str, state: World | None = None, subject: Subject | None = None) -> object:
    verdict = policy(text).resolve(subject or span(), state or World()).get(name)
    return None if verdict is None else verdict.value


PAUSE = ("tool_call", "tool_result")


def test_every_property_has_its_value_form():
    text = (
        "turn { priority: 80 retention: hold 800ms ttl: 10min fixed tier: hbm, cpu after 30s prefetch: 5s admit: no "
        "replicas: all place: same_worker share: run for: run }"
    )
    got = {n: v.value for n, v in policy(text).resolve(span(), World()).items()}
    assert got == {
        "priority": 80,
        "retention": Retention("hold", 0.8),
        "ttl": Ttl(600.0, True),
        "tier": (TierRung("gpu"), TierRung("cpu", 30.0)),
        "prefetch": 5.0,
        "admit": False,
        "replicas": "all",
        "place": "same_worker",
        "share": "run",
        "for": "run",
    }


def test_default_wins_and_leaves_the_property_unset():
    assert value("any { priority: 80 }\nturn { priority: default }", "priority") is None
    assert value("any { priority: 80 }\nturn { priority: default }", "priority", subject=span("tools")) == 80


@pytest.mark.parametrize(
    ("turns", "rank"), [(0.0, 0), (0.049, 0), (0.05, 1), (2.44, 24), (2.45, 25), (9.0, 90), (11.0, 100)]
)
def test_a_computed_rank_is_rounded_halves_upward_and_clamped(turns, rank):
    state = World(functions={("turns_ago", None): turns})
    verdict = policy("turn { priority: turns_ago() * 10 }").resolve(span(), state)["priority"]
    assert verdict.value == rank
    assert (verdict.notice is not None) == (turns == 11.0)


@pytest.mark.parametrize(
    ("density", "rank"), [(8.0, 80), (1.0, 50), (0.25, 30), (0.0, 0), (-3.0, 0), (NEVER, 100), (None, 40)]
)
def test_a_logarithm_turns_doublings_into_ranks(density, rank):
    state = World(functions={("hit_density", None): density})
    assert value("turn { priority: 50 + 10 * log2(hit_density() else 0.5) }", "priority", state) == rank


def test_a_logarithm_of_the_time_is_read_again_when_things_that_drift_are():
    state = World(functions={("idle", None): 3.0})
    steps = policy("turn { priority: 50 + 10 * log2(idle() / 1s) }").steps(span(), state)
    assert steps[:2] == pytest.approx((101.0, 103.0))


def test_never_is_greater_than_every_number_and_not_caught_by_else():
    text = "turn { priority: 90 - 10 * (steps_to_next_use() else 2) }"
    for steps, rank in ((NEVER, 0), (None, 70), (1.0, 80)):
        assert value(text, "priority", World(functions={("steps_to_next_use", None): steps})) == rank
    guarded = "turn when (steps_to_next_use() else 2) > 1000 { priority: 1 }"
    assert value(guarded, "priority", World(functions={("steps_to_next_use", None): NEVER})) == 1


def test_division_by_zero_is_no_data():
    state = World(functions={("idle", None): 0.0, ("age", None): 5.0})
    assert value("turn { priority: age() / idle() }", "priority", state) is None
    assert value("turn { priority: age() / idle() else 7 }", "priority", state) is None  # `else` binds to idle() alone
    assert value("turn { priority: (age() / idle()) else 7 }", "priority", state) == 7
    assert value("turn when age() / idle() > 1 { priority: 1 }", "priority", state) is None


def test_else_binds_tighter_than_the_rest():
    state = World(functions={("p95", "tool.duration"): None})
    assert value("turn { ttl: p95(tool.duration) else 2s * 3 }", "ttl", state) == Ttl(6.0)


def test_a_let_can_be_set_by_who_uses_the_policy():
    from kvpolicy.language import syntax

    base = file_set(["let patience = 20s", "turn { ttl: patience * 2 }"], name="base.kvp").members[0].file
    setting = file_set(["let patience = 5s", "turn { priority: 1 }"]).members[0].file.lets
    used = compile(syntax.FileSet((syntax.Member(base, "base", setting),)))
    assert used.resolve(span(), World())["ttl"].value == Ttl(10.0)
    assert used.digests == {"base.kvp": base.digest}


def test_a_name_defined_by_itself_is_refused():
    with pytest.raises(PolicyFault, match="defined by itself"):
        policy("let a = b\nlet b = a\nturn { ttl: a }")


def test_limits_clamp_and_bind_untouched_spans_below_the_default():
    text = (
        "turn { priority: 80 ttl: 1h }\n"
        "limit any { priority: at most 60 }\n"
        "limit any[agent = a] { priority: at most 20 ttl: at most 5min }"
    )
    verdicts = policy(text).resolve(span(agent="a"), World())
    assert (verdicts["priority"].value, verdicts["priority"].limited_by) == (20, "p.kvp:3")
    assert verdicts["ttl"].value == Ttl(300.0)
    assert value(text, "priority") == 60
    assert value(text, "priority", subject=span("document")) is None  # 60 is above the default: nothing to bind
    bound = policy(text).resolve(span("document", agent="a"), World())["priority"]
    assert (bound.value, bound.rule, bound.limited_by) == (20, "p.kvp:3", "p.kvp:3")


def test_a_limit_on_hold_bounds_durations_and_makes_a_pin_a_hold():
    text = "turn { retention: pin }\ndocument { retention: hold 1h }\nlimit any { hold: at most 10min }"
    assert value(text, "retention") == Retention("hold", 600.0)
    assert value(text, "retention", subject=span("document")) == Retention("hold", 600.0)


def test_quotas_are_data():
    text = (
        "turn { priority: 80 }\n"
        "limit any[plan = free] per tenant { hold: at most 10% of gpu gpu: at most 2GiB }\n"
        "limit any { disk: at most 1M }"
    )
    found = policy(text)
    rows = [(q.property, q.per, round(q.amount, 6), q.unit, q.of) for q in found.quotas]
    assert rows == [
        ("hold", "tenant", 0.1, "percent", "gpu"),
        ("gpu", "tenant", float(2 << 30), "bytes", "gpu"),
        ("disk", None, 1e6, "tokens", "disk"),
    ]
    assert [q.property for q in found.quotas_of(span(plan="pro"))] == ["disk"]
    assert found.resolve(span(plan="free"), World())["priority"].limited_by is None


def test_verdicts_tell_when_their_interval_opened_and_is_bounded():
    text = "on tool_call until tool_result at most 2h { turn { retention: hold 30s } }\nany { priority: 50 }"
    state = World(openings={PAUSE: Opening(90.0, 7290.0)})
    found = policy(text).resolve(span(), state)
    assert (found["retention"].opened_at, found["retention"].bound_at) == (90.0, 7290.0)
    assert (found["priority"].opened_at, found["priority"].by_kind) == (None, False)
    assert found["retention"].by_kind


def test_a_grace_keeps_protections_and_drops_demotions():
    text = (
        "on tool_call until tool_result { turn { retention: hold 30s priority: 80 tier: cpu } }\n"
        "on tool_call until tool_result { document { retention: drop priority: 10 } }\n"
        "any { priority: 50 }"
    )
    lingering = World(openings={PAUSE: Opening(80.0, 3680.0, grace_until=110.0)})
    found = policy(text).resolve(span(), lingering)
    assert {n: v.value for n, v in found.items()} == {"priority": 80, "retention": Retention("hold", 30.0)}
    assert found["retention"].opened_at == 80.0
    dropped = policy(text).resolve(span("document"), lingering)
    assert {n: v.value for n, v in dropped.items()} == {"priority": 50}
    over = World(now=110.0, openings=lingering.openings)
    assert {n: v.value for n, v in policy(text).resolve(span(), over).items()} == {"priority": 50}


def test_a_guard_is_asked_only_where_it_matters():
    text = "over_all: turn over guarded { priority: 1 }\nguarded: turn when pressure(gpu) > 50% { priority: 2 }"

    class Silent(World):
        def read(self, function, argument, subject):
            raise AssertionError(function)

    assert policy(text).resolve(span(), Silent())["priority"].value == 1


def test_what_does_not_read_the_state_says_so():
    text = (
        "turn { priority: 1 }\ndocument when pressure(gpu) > 50% { priority: 2 }\non compact { tools { priority: 3 } }"
    )
    found = policy(text)
    assert [found.reads_state(span(k)) for k in ("turn", "document", "tools")] == [False, True, True]


STEPS = (
    ("turn when idle() >= 5min { priority: 1 }", (380.0,)),
    ("turn when idle() > 5min { priority: 1 }", (380.000001,)),
    ("turn when idle() - 1min > 2 * 2min { priority: 1 }", (380.000001,)),
    ("turn when pressure(gpu) > 50% { priority: 1 }", ()),
    ("turn when idle() < 10s { priority: 1 }", ()),
    ("turn { priority: 50 - idle() / 1min }", (110.000001,)),
    ("turn { priority: 50 + idle() / 1min }", (110.0,)),
    ("on compact { turn when idle() >= 5min { priority: 1 } }", ()),
    ("on tool_call until tool_result { turn { priority: 80 } }", (110.0,)),
)


@pytest.mark.parametrize(("text", "times"), STEPS)
def test_steps_are_the_times_at_which_the_answer_changes(text, times):
    state = World(
        openings={PAUSE: Opening(80.0, 3680.0, grace_until=110.0)},
        functions={("idle", None): 20.0, ("pressure", "gpu"): 0.4},
    )
    assert policy(text).steps(span(), state) == pytest.approx(times, abs=1e-9)


@pytest.mark.parametrize("text", [text for text, times in STEPS if times])
def test_nothing_changes_before_the_first_step_and_something_does_at_it(text):
    found, subject = policy(text), span()

    def at(now: float) -> World:
        return World(now, {PAUSE: Opening(80.0, 3680.0, 110.0)}, {("idle", None): now - 80.0, ("pressure", "gpu"): 0.4})

    first = found.steps(subject, at(100.0))[0]
    before = {n: v.value for n, v in found.resolve(subject, at(100.0)).items()}
    assert {n: v.value for n, v in found.resolve(subject, at(first - 1e-5)).items()} == before
    assert {n: v.value for n, v in found.resolve(subject, at(first + 1e-9)).items()} != before


def test_what_drifts_is_looked_at_again_at_idle_times_in_two_steps_a_doubling():
    state = World(functions={("idle", None): 3.0, ("next_use", None): 60.0})
    steps = policy("turn when next_use() else 5s > 1min { priority: 1 }").steps(span(), state)
    assert steps[:5] == (101.0, 103.0, 105.0, 109.0, 113.0)


@dataclass
class Told(World):
    """A world that tells since when an owner is idle; None: a request of it runs."""

    since: float | None = None

    def idle_since(self, owner: Owner) -> float | None:
        return self.since


NAMED = Owner(session="s")
STILL = [
    ("turn when idle() > 2min { priority: 20 }", NAMED, ()),
    ("turn { priority: 20 + idle() / 1s }", NAMED, ()),
    ("turn when age() >= 2min { priority: 20 }", NAMED, (120.0,)),
    ("turn when next_use() else 5s > 1min { priority: 1 }", NAMED, (104.0, 136.0, 200.0)),
    ("turn when idle() > 2min { priority: 20 }", Owner(), (104.0, 136.0, 200.0)),  # not read when it goes idle
]


@pytest.mark.parametrize(("text", "owner", "times"), STILL)
def test_while_a_request_runs_idle_time_stands_still(text, owner, times):
    functions = {("idle", None): 0.0, ("age", None): 100.0 if "age()" in text else 92.0, ("next_use", None): 0.0}
    subject = Subject("turn", {}, owner)
    steps = policy(text).steps(subject, Told(functions=functions))
    assert steps[: len(times)] == pytest.approx(times)
    assert bool(steps) == bool(times)
    assert policy(text).steps(subject, Told(functions=functions, since=100.0))  # idle since now


def test_a_grace_keeps_the_longer_lifetime_with_the_rank():
    text = (
        "on tool_call until tool_result { turn { priority: 80 ttl: 10min } }\n"
        "on tool_call until tool_result { document { priority: 80 ttl: 1s } }\n"
        "any { priority: 50 ttl: 1min }"
    )
    lingering = World(openings={PAUSE: Opening(80.0, 3680.0, grace_until=110.0)})
    assert value(text, "ttl", lingering) == Ttl(600.0)
    assert value(text, "ttl", lingering, span("document")) == Ttl(60.0)


def test_a_rule_that_is_beaten_still_beats_others():
    """`a` beats `b`, and `b` beats `c`, which `a` says nothing about: `c` is beaten while `b` is a candidate."""
    found = policy(
        "a: turn[agent = x] over b { priority: 9 }\n"
        "b: turn[tokens > 1, depth = 2] when pressure(gpu) > 50% { priority: 2 }\n"
        "c: turn[tokens > 1] { priority: 3 }"
    )
    a, c = (r for r in found.rules if r.name != "b")
    assert found.order.beats(a, c) is None
    full = World(functions={("pressure", "gpu"): 0.9})
    assert found.resolve(span(agent="x", depth=2, tokens=5), full)["priority"].rule == "a"


@pytest.mark.parametrize("order", [(20, 60), (60, 20)])
def test_the_least_at_most_and_the_greatest_at_least_count(order):
    most = "\n".join(f"limit any {{ priority: at most {n} }}" for n in order)
    least = "\n".join(f"limit any {{ priority: at least {n} }}" for n in order)
    assert value(f"turn {{ priority: 80 }}\n{most}", "priority") == 20
    assert value(f"turn {{ priority: 10 }}\n{least}", "priority") == 60


def test_spans_on_both_sides_of_a_bound_are_told_apart():
    found = policy("turn[tokens >= 1k] { priority: 80 }\nturn[depth > 2] { ttl: 1s }\nturn[depth = 2] { ttl: 2s }")
    ranks = [found.resolve(span(tokens=n), World()).get("priority") is not None for n in (999, 1000, 1001, 999, 1000)]
    assert ranks == [False, True, True, False, True]
    times = [found.resolve(span(depth=n), World()).get("ttl") for n in (1, 2, 3)]
    assert [None if v is None else v.value.seconds for v in times] == [None, 2.0, 1.0]


def test_owners_with_different_openings_are_told_apart():
    found = policy("on tool_call until tool_result { turn { retention: hold 30s } }")
    for at in (10.0, 20.0, 10.0):
        state = World(openings={PAUSE: Opening(at, at + 3600.0)})
        assert found.resolve(span(), state)["retention"].opened_at == at
