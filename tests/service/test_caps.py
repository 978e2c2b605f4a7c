"""What a client cannot have by its own words: a higher priority, a longer life, a wider share, what is another's."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kvpolicy import words
from kvpolicy.adapter import find_adapter
from kvpolicy.directive import DROP, HOLD, NORMAL, PIN, Directive, Plan, Retention
from kvpolicy.language.load import load_text
from kvpolicy.policy.checked import examined
from kvpolicy.policy.policy import Policy
from kvpolicy.service.config import Caps, PolicySection
from kvpolicy.service.decisions import Decisions
from kvpolicy.service.edge import RAW_FIELDS, stripped
from kvpolicy.service.exchange import DONE, Exchange
from kvpolicy.service.holding import Holding
from kvpolicy.service.isolation import mint
from kvpolicy.service.meaning.annotations import EVENT_NAMES
from kvpolicy.service.planning import Planning, bounded
from kvpolicy.service.policies import ENFORCE, Policies
from kvpolicy.service.telling import Alone
from kvpolicy.service.tenants import Tenant
from kvpolicy.workflow.state import RunState

SECRET = b"s" * 32
POLICY = """
policy p
layer all { turn, system, document { priority: 40 } }
layer vip { any[agent=vip] { priority: 95  ttl: 6h  retention: hold 40min  share: global } }
layer kinds {
  scratchpad { priority: 99  retention: pin }
  on tool_call until tool_result { document { priority: 97  retention: hold until tool_result at most 1h } }
}
"""
CAPS = Caps(max_priority=60, max_ttl="10min", max_hold="30s", share=("session", "tenant"))
TTL, HOLD_S = 600.0, 30.0


@cache
def compiled(text: str) -> Policy:
    return examined(load_text(text)).policy()


@cache
def live(text: str, mode: Any) -> Policies:
    found = Policies(PolicySection(mode=mode), {}, lambda policy: None)
    found.put("coding_agent", compiled(text))
    return found


def made(text: str = POLICY, mode: Any = "enforce") -> Decisions:
    """Decisions over a policy, without engines."""
    state = RunState(compiled(text).intervals)
    planning = Planning(state, find_adapter("vllm"), within=5.0)
    holding = Holding(planning, lambda url, message: None)
    clock = iter(range(10**9))
    return Decisions(
        live(text, mode), planning, holding, Alone(state), lambda o, s: mint(SECRET, o, s), SECRET,
        lambda: float(next(clock)),
    )  # fmt: skip


def exchange(tenant: Tenant, body: dict[str, Any], headers: dict[str, str] | None = None, name: str = "e1") -> Exchange:
    return Exchange(name, "completions", tenant, headers or {}, body, 0.0, False, stripped(body))


def sent(decisions: Decisions, asked: Exchange) -> Any:
    asyncio.run(decisions.enter(asked))
    return asked.notes["decisions"]


TOKENS = list(range(200))
MARK = st.fixed_dictionaries(
    {
        "tokens": st.lists(st.integers(0, 200), min_size=2, max_size=2).map(sorted),
        "kind": st.sampled_from(sorted(words.SPAN_KINDS)),
        "agent": st.sampled_from(["vip", "x"]),
    }
)
NAME = st.sampled_from(["vip", "t2", "~1", "a", "default", "*", "t2\x00s"])
KVP = st.fixed_dictionaries(
    {},
    optional={
        "context": st.dictionaries(
            st.sampled_from(["session", "run", "agent", "branch", "node", "tenant", "plan"]), NAME, max_size=5
        ),
        "spans": st.lists(MARK, max_size=3),
        "events": st.lists(
            st.fixed_dictionaries(
                {"event": st.sampled_from(sorted(EVENT_NAMES))},
                optional={"tenant": NAME, "session": NAME, "tool": NAME, "run": NAME},
            ),
            max_size=3,
        ),
        "policy": st.sampled_from(["p", "continuum", {"name": "p", "mode": "enforce"}]),
        "priority": st.just(100),
        "ttl": st.just("9d"),
    },
)
RAW = st.dictionaries(st.sampled_from(sorted(RAW_FIELDS)), st.just({"priority": 100}), max_size=4)


@settings(max_examples=60, deadline=None)
@given(KVP, RAW)
def test_no_word_of_a_client_brings_more_than_its_caps(said: dict[str, Any], raw: dict[str, Any]) -> None:
    decisions = made()
    body = {**raw, "model": "m", "prompt": TOKENS, "kvp": said}
    asked = exchange(Tenant("t1", caps=CAPS), body, {"x-kvp-context": 'agent="vip"'})
    seen = sent(decisions, asked)
    assert seen.arrived.owner.tenant == "t1"
    assert seen.plan is not None
    for each in seen.plan.directives:
        assert each.priority <= CAPS.max_priority
        assert each.ttl is None or each.ttl <= TTL
        assert each.protected_until is None or each.protected_until <= seen.plan.at + HOLD_S
        assert each.hold_after_release is None or each.hold_after_release <= HOLD_S
        assert each.share in CAPS.share
    assert asked.sent["cache_salt"] in {mint(SECRET, seen.arrived.owner, share) for share in CAPS.share}
    assert not set(asked.sent) & (RAW_FIELDS - {"cache_salt"})


@settings(max_examples=60, deadline=None)
@given(KVP)
def test_no_word_of_a_client_reaches_another_tenants_owners(said: dict[str, Any]) -> None:
    decisions = made()
    theirs = sent(
        decisions, exchange(Tenant("t2"), {"prompt": TOKENS, "kvp": {"session": "vip", "run": "vip"}}, name="e0")
    )
    state = decisions.state
    before = (state.phase(theirs.arrived.owner), state.owners())
    asked = exchange(Tenant("t1"), {"prompt": TOKENS, "kvp": said})
    seen = sent(decisions, asked)
    asked.upstream = "http://engine"
    decisions.leave(asked, DONE)
    assert (state.phase(theirs.arrived.owner)) == before[0]
    assert {owner.tenant for owner in set(state.owners()) - set(before[1])} <= {"t1"}
    assert seen.arrived.chain is not theirs.arrived.chain


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(["off", "shadow", "enforce"]), st.sampled_from(["off", "shadow", "enforce"]), st.booleans())
def test_a_wish_only_lowers_the_mode(allowed: Any, wish: str, by_header: bool) -> None:
    decisions = made(mode=allowed)
    rank = ["off", "shadow", "enforce"]
    said = {} if by_header else {"kvp": {"mode": wish}}
    headers = {"x-kvp-policy": f"coding_agent;mode={wish}"} if by_header else {}
    seen = sent(decisions, exchange(Tenant("t"), {"prompt": TOKENS, **said}, headers))
    assert rank.index(seen.chosen.mode) == min(rank.index(allowed), rank.index(wish))


def test_who_says_nothing_has_what_the_operator_wrote() -> None:
    decisions = made("policy p\nturn { priority: 95 }\n")
    seen = sent(decisions, exchange(Tenant("t1", caps=CAPS), {"prompt": TOKENS}))
    assert [each.priority for each in seen.plan.directives] == [95]
    told = exchange(Tenant("t1", caps=CAPS), {"prompt": TOKENS, "kvp": {"agent": "x"}}, name="e2")
    assert [each.priority for each in sent(decisions, told).plan.directives] == [60]
    assert "CLIPPED" in told.answer_headers["x-kvp-warn"]
    assert "status=clipped" in told.answer_headers["x-kvp-decision"]


def test_a_policy_that_is_not_offered_is_not_had() -> None:
    decisions = made()
    seen = sent(decisions, exchange(Tenant("t"), {"prompt": TOKENS}, {"x-kvp-policy": "continuum"}))
    assert seen.chosen.version.name == "coding_agent"
    assert seen.chosen.mode == ENFORCE


# --- the bound itself -----------------------------------------------------------------------------------------------

RETENTION = st.one_of(
    st.just(Retention(NORMAL)),
    st.just(Retention(DROP)),
    st.just(Retention(PIN)),
    st.floats(1, 1e6).map(lambda s: Retention(HOLD, seconds=s)),
    st.floats(1, 1e6).map(lambda s: Retention(HOLD, until="tool_result", at_most=s)),
    st.just(Retention(HOLD, until="tool_result")),
)


@st.composite
def directives(draw: Any) -> Directive:
    kept = draw(RETENTION)
    length = kept.seconds or kept.at_most or 3600.0
    opened = draw(st.floats(-1e5, 0))
    until = float("inf") if kept.mode == PIN else opened + length if kept.mode == HOLD else None
    return Directive(
        0, "turn", 0, 10, draw(st.integers(0, 100)), kept, until if draw(st.booleans()) else None, None,
        draw(st.none() | st.floats(1, 1e6)), False, "session",
        hold_after_release=length if kept.mode == HOLD and draw(st.booleans()) else None,
        share=draw(st.sampled_from(words.SHARES)),
    )  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.lists(directives(), max_size=4), st.floats(0, 1e4))
def test_a_bounded_plan_is_within_and_reading_it_again_makes_it_no_longer(rows: list[Directive], later: float) -> None:
    plan = Plan("r", 0.0, tuple(rows), "global", None)
    first, again = bounded(plan, CAPS, 0.0), bounded(plan, CAPS, later)
    for one, other in zip(first.directives, again.directives, strict=True):
        assert one.priority <= 60
        assert one.retention.mode != PIN
        assert one.protected_until is None or one.protected_until <= HOLD_S
        if other.protected_until is not None and one.protected_until is not None:
            assert other.protected_until <= max(one.protected_until, 0.0) + 1e-6
        assert one.ttl is None or one.ttl <= TTL
    assert first.share == "tenant"
    assert bounded(first, CAPS, 0.0).directives == first.directives
