"""Block rows: the strongest claim at or behind each block, drops spread, and the keys of the JSON."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kvpolicy.blocks import lay_out
from kvpolicy.directive import Retention, Ttl, Verdict
from kvpolicy.plan import plan
from kvpolicy.plan.rows import as_json, block_rows
from kvpolicy.policy.model import Subject
from kvpolicy.request import Request, Span
from tests.plan.plan_stubs import Now, Says, Values, request

DROP, HOLD, PIN = Retention("drop"), Retention("hold", 30.0), Retention("pin")


def shown(policy: Says, asked: Request, now: float = 0.0) -> dict[str, Any]:
    return as_json(plan(policy, asked, Now(now), now), asked)


def ranks(policy: Says, asked: Request) -> list[tuple[int, bool, bool, int | None]]:
    return [(b["rank"], b["protected"], b["dropped"], b["held_for"]) for b in shown(policy, asked)["blocks"]]


def thirds() -> Request:
    """System, document and turn of two blocks each."""
    return request(Span("system", 0, 32), Span("document", 32, 64), Span("turn", 64, 96), tokens=96)


def test_span_edges_inside_a_block_and_a_span_that_owns_no_full_block() -> None:
    """Case C01. Where ends of spans fall inside a block it goes to the later span, so to tools and to the user."""
    asked = request(Span("system", 0, 40), Span("tools", 40, 50), Span("turn", 50, 80))
    policy = Says({"system": {"priority": 90}, "tools": {"priority": 80}})
    answer = shown(policy, asked)
    assert [b["rank"] for b in answer["blocks"]] == [90, 90, 80, 35, 35]
    assert [b["straddles"] for b in answer["blocks"]] == [False, False, True, True, False]
    assert [b["held_for"] for b in answer["blocks"]] == [0, 0, 1, 2, 2]
    assert [s["full_blocks"] for s in answer["spans"]] == [2, 0, 1]
    assert [s["owned_blocks"] for s in answer["spans"]] == [2, 1, 2]
    assert [n["code"] for n in answer["notices"]] == ["SPAN_SHORTER_THAN_BLOCK"]
    assert [d["kind"] for d in answer["directives"]] == ["system", "tools"]
    assert shown(policy, asked) == answer


def test_an_earlier_block_stands_no_lower_than_what_is_kept_behind_it() -> None:
    policy = Says({"system": {"priority": 10}, "document": {"priority": 70}})
    assert ranks(policy, thirds()) == [(70, False, False, 1)] * 4 + [(35, False, False, 2)] * 2


def test_a_low_rank_bites_only_where_nothing_behind_is_kept() -> None:
    policy = Says({"document": {"priority": 10}, "turn": {"priority": 5}})
    assert (
        ranks(policy, thirds())
        == [(35, False, False, 0)] * 2 + [(10, False, False, 1)] * 2 + [(5, False, False, 2)] * 2
    )


def test_protection_comes_before_priority() -> None:
    policy = Says({"system": {"priority": 90}, "document": {"retention": HOLD, "priority": 20}})
    assert ranks(policy, thirds()) == [(20, True, False, 1)] * 4 + [(35, False, False, 2)] * 2


def test_a_hold_that_is_over_leaves_the_priority() -> None:
    held = Verdict("retention", HOLD, "wait", 0.0, 3600.0)
    policy = Says({"turn": {"retention": held, "priority": 50}})
    assert {(b["rank"], b["protected"]) for b in shown(policy, thirds(), 29.9)["blocks"]} == {(50, True)}
    assert {(b["rank"], b["protected"]) for b in shown(policy, thirds(), 30.0)["blocks"]} == {(50, False)}


# --- drops ----------------------------------------------------------------------------------------------


def test_a_drop_takes_everything_behind_it() -> None:
    policy = Says({"document": {"retention": DROP, "priority": 80}, "turn": {"priority": 90, "retention": PIN}})
    assert (
        ranks(policy, thirds()) == [(35, False, False, 0)] * 2 + [(0, False, True, 1)] * 2 + [(0, False, True, 2)] * 2
    )


def test_a_drop_takes_untouched_spans_behind_it() -> None:
    assert (
        ranks(Says({"system": {"retention": DROP}}), thirds())
        == [(0, False, True, 0)] * 2 + [(0, False, True, 1)] * 2 + [(0, False, True, 2)] * 2
    )


def test_a_span_says_with_which_one_it_is_dropped() -> None:
    policy = Says({"document": {"retention": DROP}, "turn": {"priority": 90}})
    assert [row.get("dropped_with") for row in shown(policy, thirds())["spans"]] == [None, None, 1]
    both = Says({"document": {"retention": DROP}, "turn": {"retention": DROP}})
    assert [row.get("dropped_with") for row in shown(both, thirds())["spans"]] == [None, None, None]


def test_a_drop_through_any_leaves_claims_for_the_agent() -> None:
    dropped = Verdict("retention", DROP, "all", by_kind=False)
    policy = Says({kind: {"retention": dropped} for kind in ("system", "document", "turn")})
    assert (
        ranks(policy, thirds()) == [(35, False, False, 0)] * 2 + [(0, False, True, 1)] * 2 + [(0, False, True, 2)] * 2
    )
    by_kind = Says({kind: {"retention": DROP} for kind in ("system", "document", "turn")})
    assert [row[2] for row in ranks(by_kind, thirds())] == [True] * 6


def test_an_agents_claim_behind_a_drop_through_any_holds_what_it_needs() -> None:
    dropped = Verdict("retention", DROP, "all", by_kind=False)
    policy = Says({"system": {"retention": dropped, "for": "session"}, "turn": {"for": "tenant", "priority": 60}})
    assert [row[:3] for row in ranks(policy, thirds())] == [(60, False, False)] * 6


# --- the last block, outputs, images --------------------------------------------------------------------


def test_nobody_claims_a_block_that_is_not_full() -> None:
    asked = request(Span("system", 0, 40), Span("output", 40, None), tokens=40)
    answer = shown(Says({"system": {"priority": 90}, "output": {"priority": 10}}), asked)
    assert [(b["full"], b["rank"], b["held_for"]) for b in answer["blocks"]] == [
        (True, 90, 0),
        (True, 90, 0),
        (False, 35, None),
    ]
    assert answer["blocks"][2]["straddles"]
    assert [d["end"] for d in answer["directives"]] == [40, None]


def test_blocks_without_a_known_place_are_claimed_by_nobody() -> None:
    asked = request(Span("system", 0, 32), Span("turn", 32, 96), tokens=96, extra={"images": [{"start": 40}]})
    answer = shown(Says({"system": {"priority": 60}, "turn": {"priority": 90}}), asked)
    assert [(b["rank"], b["held_for"]) for b in answer["blocks"]] == [(60, 0)] * 2 + [(35, None)] * 4


def test_what_stands_behind_an_expanded_image_keeps_its_place() -> None:
    """Case C20: 32 tokens of text, 48 of a picture, 16 of text. One share for the request: spans cannot differ."""
    spans = (Span("system", 0, 32), Span("document", 32, 80), Span("turn", 80, 96))
    asked = request(*spans, tokens=96, extra={"images": [{"start": 32, "length": 48, "digest": "0" * 64}]})
    closed = shown(Says({"turn": {"priority": 60}}), asked)
    assert [d["start"] for d in closed["directives"]] == [80]
    assert (closed["share"], closed["notices"]) == ("tenant", [])
    opened = shown(Says({"system": {"share": "global"}}), asked)
    assert (opened["share"], [n["code"] for n in opened["notices"]]) == ("tenant", ["SHARE_NARROWED"])


# --- the JSON -------------------------------------------------------------------------------------------


def test_a_directives_row_says_times_as_numbers_and_durations_in_the_language() -> None:
    answers: dict[str, Values] = {
        "system": {"priority": 90, "retention": PIN, "ttl": Ttl(90.0)},
        "turn": {"priority": 80, "ttl": Ttl(300.0, fixed=True), "retention": Verdict("retention", HOLD, "w", 5.0, 9.0)},
    }
    answer = shown(Says(answers), thirds(), 6.0)
    first, second = answer["directives"]
    assert first == {
        "span": 0,
        "kind": "system",
        "start": 0,
        "end": 32,
        "priority": 90,
        "retention": "pin",
        "protected_until": "never",
        "hold_after_release_s": None,
        "expires": None,
        "ttl": "90s",
        "for": "agent",
        "tier": [{"tier": "gpu", "after_s": 0}],
        "prefetch": False,
        "admit": True,
        "replicas": 1,
        "place": "anywhere",
        "share": "tenant",
        "rules": {"priority": "system_rule", "retention": "system_rule", "ttl": "system_rule"},
    }
    assert (second["retention"], second["protected_until"], second["ttl"], second["expires"]) == (
        "hold 30s",
        9.0,
        "5min fixed",
        306.0,
    )
    assert answer["valid_until"] == 9.0
    assert json.loads(json.dumps(answer)) == answer


# --- against every claim on every block -----------------------------------------------------------------

VALUES = st.fixed_dictionaries(
    {},
    optional={
        "priority": st.sampled_from([0, 20, 35, 36, 60, 100]),
        "for": st.sampled_from(["session", "agent"]),
        "retention": st.one_of(
            st.sampled_from([HOLD, PIN, Retention()]),
            st.booleans().map(lambda by_kind: Verdict("retention", DROP, "r", by_kind=by_kind)),
        ),
    },
)


@st.composite
def planned(draw: st.DrawFn) -> tuple[Request, dict[int, Values]]:
    size, spans, place = draw(st.integers(1, 5)), [], 0
    for _ in range(draw(st.integers(0, 6))):
        start = place + draw(st.integers(0, 3))
        place = start + draw(st.integers(0, 9))
        spans.append(Span(draw(st.sampled_from(["system", "document", "turn"])), start, place))
    tokens = place + draw(st.integers(0, 6))
    if draw(st.booleans()):
        spans.append(Span("output", tokens, None))
    values = {i: draw(VALUES) for i in range(2 * len(spans) + 2)}
    return request(*spans, tokens=tokens, block_size=size), values


@given(planned())
def test_every_block_has_the_strongest_claim_that_covers_it(case: tuple[Request, dict[int, Values]]) -> None:
    asked, values = case

    def by_span(subject: Subject) -> Values:
        return values[subject.span]

    made = plan(Says(by_span), asked, Now(), 0.0)
    layout = lay_out(asked)
    told = {d.span: d for d in made.directives}
    rows = block_rows(made, layout)
    claims = []  # (span, end in tokens, (class, priority))
    kind_dropped = any_dropped = False
    for index in layout.order:
        span = layout.spans[index]
        if span.start == span.end:
            continue
        d = told.get(index)
        lifetime = d.lifetime if d else ("agent" if span.kind == "system" else "session")
        if d and d.retention == DROP:
            kind_dropped |= d.drop_by_kind
            any_dropped = True
        if kind_dropped or (any_dropped and lifetime != "agent"):
            claims.append((index, layout.end(index), (0, 0)))
        elif d and d.retention in (HOLD, PIN):
            claims.append((index, layout.end(index), (2, d.priority)))
        else:
            claims.append((index, layout.end(index), (1, d.priority if d else 35)))
    previous = None
    for row in rows:
        if not row.full:
            assert (row.rank, row.held_for) == (35, None)
            continue
        covering = [c for c in claims if c[1] >= (row.index + 1) * asked.block_size]
        strongest = max(c[2] for c in covering)
        found = (2 if row.protected else 0 if row.dropped else 1, row.rank)
        assert found == strongest
        assert row.held_for == next(c[0] for c in covering if c[2] == strongest)
        assert previous is None or found <= previous  # law 1
        previous = found
