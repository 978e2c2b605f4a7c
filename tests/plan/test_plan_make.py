"""What `plan` shows to the policy, and what it makes of the answers."""

from __future__ import annotations

import random

import pytest

from kvpolicy.directive import Retention, TierRung, Ttl, Verdict
from kvpolicy.faults import InputFault
from kvpolicy.plan import plan
from kvpolicy.policy.model import Subject
from kvpolicy.request import Owner, Span
from tests.plan.plan_stubs import Now, Says, request

HEAD = (Span("system", 0, 40), Span("tools", 40, 50), Span("turn", 50, 80))


def test_without_a_policy_nothing_is_planned() -> None:
    made = plan(None, request(*HEAD), Now(3.0), 3.0)
    assert (made.directives, made.notices, made.valid_until, made.share, made.at) == ((), (), None, "tenant", 3.0)


def test_a_span_that_no_rule_touches_has_no_directive() -> None:
    made = plan(Says({"system": {"priority": 90}}), request(*HEAD), Now(), 0.0)
    assert [(d.span, d.kind, d.priority, d.rules) for d in made.directives] == [
        (0, "system", 90, {"priority": "system_rule"})
    ]


def test_a_subject_has_the_facts_of_request_owner_span_and_state() -> None:
    policy = Says({})
    owner = Owner("t", "s", "run", "coder", "b1")
    spans = (Span("turn", 0, 40, {"agent": "writer", "name": None}), Span("output", 40, None))
    asked = request(*spans, tokens=40, owner=owner, model="m", attributes={"plan": "free", "turn": 3}, last_step=True)
    plan(policy, asked, Now(told={"b1": {"rank": 2, "status": "running", "score": None}}), 0.0)
    shared = {"tenant": "t", "session": "s", "branch": "b1", "model": "m", "plan": "free", "turn": 3}
    shared |= {"last_step": True, "rank": 2, "status": "running"}
    assert policy.asked == [
        Subject("turn", {**shared, "agent": "writer", "tokens": 40}, owner, 0),
        Subject("output", {**shared, "agent": "coder"}, owner, 1),
    ]


def test_absent_attributes_are_absent() -> None:
    policy = Says({})
    plan(policy, request(Span("turn", 0, 80), owner=Owner()), Now(), 0.0)
    assert policy.asked[0].attributes == {"tenant": "default", "tokens": 80}


def test_a_span_cannot_say_whose_it_is() -> None:
    policy = Says({})
    spans = (Span("turn", 0, 80, {"tenant": "other", "plan": "gold", "tool": "grep"}),)
    plan(policy, request(*spans, attributes={"plan": "free", "tenant": "another"}), Now(), 0.0)
    assert policy.asked[0].attributes == {"tenant": "t", "session": "s", "plan": "free", "tool": "grep", "tokens": 80}


def test_a_span_labelled_with_a_branch_has_that_branches_state() -> None:
    policy = Says({})
    state = Now(told={"b1": {"rank": 1, "score": 0.5}, "b2": {"status": "pruned"}})
    spans = (Span("branch", 0, 40, {"branch": "b2"}), Span("branch", 40, 80, {"branch": "b1"}))
    plan(policy, request(*spans, owner=Owner("t", None, None, None, "b1")), state, 0.0)
    assert policy.asked[0].attributes == {"tenant": "t", "branch": "b2", "status": "pruned", "tokens": 40}
    assert policy.asked[1].attributes == {"tenant": "t", "branch": "b1", "rank": 1, "score": 0.5, "tokens": 40}


def test_uncovered_tokens_are_turns_and_empty_spans_are_not_asked_for() -> None:
    policy = Says({"turn": {"priority": 50}})
    made = plan(policy, request(Span("tools", 0, 0), Span("system", 0, 48)), Now(), 0.0)
    assert [(d.span, d.start, d.end) for d in made.directives] == [(2, 48, 80)]
    assert [s.kind for s in policy.asked] == ["system", "turn"]


def test_values_not_set_are_the_defaults() -> None:
    policy = Says({kind: {"admit": True} for kind in ("system", "tools", "turn")})
    made = plan(policy, request(*HEAD), Now(), 0.0)
    assert [d.lifetime for d in made.directives] == ["agent", "agent", "session"]
    first = made.directives[0]
    assert (first.priority, str(first.retention), first.protected_until, first.ttl) == (35, "normal", None, None)
    assert (first.tier, first.prefetch, first.replicas, first.place, first.share) == (
        None,
        False,
        1,
        "anywhere",
        "tenant",
    )


def test_every_property_reaches_the_directive() -> None:
    values = {
        "priority": 70,
        "retention": Retention("pin"),
        "ttl": Ttl(60.0),
        "for": "run",
        "tier": (TierRung("gpu"), TierRung("cpu", 30.0)),
        "prefetch": 2.5,
        "admit": False,
        "replicas": "all",
        "place": "same_worker",
        "share": "run",
    }
    (made,) = plan(Says({"turn": values}), request(Span("turn", 0, 80)), Now(), 0.0).directives
    assert (made.priority, made.retention, made.ttl, made.lifetime) == (70, Retention("pin"), 60.0, "run")
    assert (made.tier, made.prefetch, made.admit) == (values["tier"], 2.5, False)
    assert (made.replicas, made.place, made.share) == ("all", "same_worker", "run")
    assert set(made.rules) == set(values)


# --- share ----------------------------------------------------------------------------------------------


def test_the_narrowest_share_holds_for_the_request_and_is_told_of() -> None:
    policy = Says({"system": {"share": "global"}, "tools": {"share": "session"}})
    made = plan(policy, request(*HEAD), Now(), 0.0)
    assert made.share == "session"
    (notice,) = [n for n in made.notices if n.code == "SHARE_NARROWED"]
    assert notice.details["asked"] == ["session", "tenant", "global"]


def test_a_share_that_all_spans_ask_for_is_given_without_a_word() -> None:
    policy = Says({kind: {"share": "global"} for kind in ("system", "tools", "turn")})
    made = plan(policy, request(*HEAD), Now(), 0.0)
    assert made.share == "global"
    assert "SHARE_NARROWED" not in {n.code for n in made.notices}


# --- valid_until ----------------------------------------------------------------------------------------


def opened(value: Retention, at: float, bound: float = 3700.0) -> Verdict:
    return Verdict("retention", value, "wait", at, bound)


def test_a_plan_stands_until_the_first_thing_that_may_change_it() -> None:
    hold = {"retention": opened(Retention("hold", 30.0), 100.0)}
    assert plan(Says({"turn": hold}), request(*HEAD), Now(110.0), 110.0).valid_until == 130.0
    assert plan(Says({"turn": hold}), request(*HEAD), Now(130.0), 130.0).valid_until is None
    assert plan(Says({"turn": hold}, steps=(105.0, 112.0)), request(*HEAD), Now(110.0), 110.0).valid_until == 112.0
    fixed = {"priority": 80, "ttl": Ttl(5.0, fixed=True)}
    assert plan(Says({"turn": hold, "system": fixed}), request(*HEAD), Now(110.0), 110.0).valid_until == 115.0


def test_steps_of_untouched_spans_count_too() -> None:
    assert plan(Says({}, steps=(7.0,)), request(*HEAD), Now(), 0.0).valid_until == 7.0


def test_a_ladder_steps_by_idle_time() -> None:
    tiers = {"tier": (TierRung("gpu"), TierRung("cpu", 30.0), TierRung("disk", 600.0))}
    policy = Says({"turn": tiers})
    assert plan(policy, request(*HEAD), Now(105.0, idle=100.0), 105.0).valid_until == 130.0
    assert plan(policy, request(*HEAD), Now(130.0, idle=100.0), 130.0).valid_until == 700.0
    assert plan(policy, request(*HEAD), Now(105.0), 105.0).valid_until is None


# --- notices --------------------------------------------------------------------------------------------


def test_a_stated_span_without_a_full_block_is_told_of() -> None:
    made = plan(Says({}), request(Span("system", 0, 40), Span("tools", 40, 50)), Now(), 0.0)
    (notice,) = made.notices
    assert (notice.code, notice.details) == ("SPAN_SHORTER_THAN_BLOCK", {"span": 1, "tokens": 10, "block_size": 16})
    made = plan(Says({}), request(Span("system", 0, 80), Span("output", 80, None)), Now(), 0.0)
    assert made.notices == ()


def test_a_limited_value_is_told_of() -> None:
    limited = {"priority": Verdict("priority", 40, "r", limited_by="free_plan")}
    made = plan(Says({"system": limited}), request(Span("system", 0, 80)), Now(), 0.0)
    assert [(n.code, n.details["limit"]) for n in made.notices] == [("CLIPPED", "free_plan")]
    strained = {"priority": Verdict("priority", 100, "r", notice="120 became 100")}
    made = plan(Says({"system": strained}), request(Span("system", 0, 80)), Now(), 0.0)
    assert [(n.code, n.message) for n in made.notices] == [("CLIPPED", "120 became 100")]


def test_behind_an_image_of_unknown_length_there_is_no_place_for_a_directive() -> None:
    spans = (Span("system", 0, 32), Span("document", 32, 80), Span("turn", 80, 96))
    everything = Says({kind: {"priority": 60} for kind in ("system", "document", "turn")})
    told = request(*spans, tokens=96, extra={"images": [{"start": 32, "length": 48, "digest": "d"}]})
    made = plan(everything, told, Now(), 0.0)
    assert [(d.start, d.end) for d in made.directives] == [(0, 32), (32, 80), (80, 96)]
    untold = request(*spans, tokens=96, extra={"images": [{"start": 32, "length": None, "digest": "d"}]})
    made = plan(everything, untold, Now(), 0.0)
    assert [(d.start, d.end) for d in made.directives] == [(0, 32)]
    (notice,) = made.notices
    assert (notice.code, notice.details) == ("POSITION_UNKNOWN", {"spans": [1, 2]})


def test_a_span_without_a_place_still_narrows_the_share() -> None:
    spans = (Span("system", 0, 32), Span("turn", 32, 96))
    asked = request(*spans, tokens=96, extra={"images": [{"start": 40}]})
    assert plan(Says({"turn": {"share": "session"}}), asked, Now(), 0.0).share == "session"


# --- same state, same plan ------------------------------------------------------------------------------


def test_the_order_of_spans_and_attributes_does_not_matter() -> None:
    spans = [Span("document", 16 * i, 16 * i + 16, {"name": f"d{i}", "tool": "x"}) for i in range(12)]
    spans[3] = Span("scratchpad", 48, 60)

    def by_name(subject: Subject) -> dict[str, object]:
        return {"priority": len(str(subject.attributes.get("name"))) * 10} if "name" in subject.attributes else {}

    first = plan(Says(by_name), request(*spans, tokens=200, attributes={"plan": "p", "turn": 1}), Now(), 0.0)
    chance = random.Random(1)
    for _ in range(5):
        chance.shuffle(spans)
        turned = [Span(s.kind, s.start, s.end, dict(reversed(s.attributes.items()))) for s in spans]
        asked = request(*turned, tokens=200, attributes={"turn": 1, "plan": "p"})
        assert plan(Says(by_name), asked, Now(), 0.0) == first


def test_a_request_that_cannot_be_is_refused() -> None:
    with pytest.raises(InputFault, match="overlap"):
        plan(Says({}), request(Span("system", 0, 40), Span("tools", 30, 80)), Now(), 0.0)
