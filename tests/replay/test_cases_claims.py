"""Public fault reports as timelines: who claims a block, how strongly, and until when (C01, C05, C11, C13)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.replay.timeline_steps import finish, named, play, ranks, request, show, span

Row = dict[str, Any]


def claim(at: float, owner: str, blocks: list[str], **more: Any) -> Row:
    return {"at": at, "do": "claim", "owner": {"session": owner}, "blocks": blocks, **more}


def test_c01_span_edges_inside_a_block(tmp_path: Path) -> None:
    """The plan of this request stands in tests/plan; here its blocks. Where the case leaves a choice (block 2), the
    later span's rank holds: a block belongs to the span of its last token."""
    spans = [span("system", 0, 40), span("tools", 40, 50), span("turn", 50, 80)]
    steps = [request(0, "r", "s", tokens=list(range(80)), spans=spans), show(0, [f"r:{i}" for i in range(5)])]
    policy = "system { priority: 90 }\ntools { priority: 80 }\n"
    asked, shown = play(tmp_path, steps, policy)
    assert ranks(shown) == [90, 90, 80, 35, 35]
    assert [n["code"] for n in asked["notices"]] == ["SPAN_SHORTER_THAN_BLOCK"]
    assert play(tmp_path, steps, policy) == [asked, shown]


# A block that is there, and whose first user claims nothing any more.
B0 = [
    request(0, "first", "gone", hashes=["B0"]),
    finish(0, "first"),
    {"at": 0, "do": "release", "owner": {"session": "gone"}},
]
R1 = claim(0, "R1", ["B0"], priority=80, ttl="60s fixed")
R2 = claim(10, "R2", ["B0"], priority=30, ttl="600s fixed")


def test_c05_two_owners_claim_one_block(tmp_path: Path) -> None:
    """At 610 the case allows 30 or no level; the contract says 30: lapsing never raises."""
    times = [30, 59.9, 60, 609, 610]
    answers = play(tmp_path, [*B0, R1, R2, *(show(t, ["B0"]) for t in times)])
    assert [ranks(a)[0] for a in answers[5:]] == [80, 80, 30, 30, 30]
    assert len(answers[5]["blocks"][0]["claims"]) == 2
    assert answers[5]["blocks"][0]["owners"] == 2
    assert answers[3]["hints"][0]["status"] == "accepted"


@pytest.mark.parametrize("first", ["R1", "R2"])
def test_c05_the_order_of_arrival_does_not_matter(tmp_path: Path, first: str) -> None:
    one = dict(R1, at=10)
    two = dict(R2, at=10)
    pair = [one, two] if first == "R1" else [two, one]
    answers = play(tmp_path, [*B0, *pair, show(30, ["B0"]), show(70, ["B0"])])
    assert [ranks(a)[0] for a in answers[5:]] == [80, 30]


def test_c05_b_a_release_leaves_the_other_claim(tmp_path: Path) -> None:
    gone = {"at": 20, "do": "release", "owner": {"session": "R1"}, "blocks": ["B0"]}
    answers = play(tmp_path, [*B0, R1, R2, show(19, ["B0"]), gone, show(20, ["B0"]), gone | {"at": 21}])
    assert ranks(answers[5]) == [80] and ranks(answers[7]) == [30]
    assert answers[6]["hints"][0]["granted"] == 1
    assert answers[8]["hints"][0]["granted"] == 0  # again: no effect


def test_c05_c_a_use_without_a_level_counts_as_the_default(tmp_path: Path) -> None:
    steps = [
        *B0,
        claim(0, "R3", ["B0"], ttl="100s"),
        claim(5, "R4", ["B0"], priority=30, ttl="50s"),
        {"at": 6, "do": "split", "block": "B0"},
        show(7, ["B0"]),
        show(56, ["B0"]),
    ]
    answers = play(tmp_path, steps)
    assert ranks(answers[-2]) == [35] and ranks(answers[-1]) == [35]
    assert len(answers[-2]["blocks"][0]["claims"]) == 2


def test_c05_what_one_owner_alone_uses_takes_its_rank(tmp_path: Path) -> None:
    steps = [
        request(0, "first", "R2", hashes=["B0", "B1"]),
        finish(0, "first"),
        claim(0, "R1", ["B0"], priority=80, ttl="60s fixed"),
        claim(10, "R2", ["B1"], priority=30, ttl="600s fixed"),
        show(30, ["B0", "B1"]),
    ]
    assert ranks(play(tmp_path, steps)[-1]) == [80, 30]


PINS = [
    request(0, "a", "A", blocks=("a", 30)),
    finish(0, "a"),
    claim(0, "A", named("a", 30), retention="pin"),
    claim(1, "B", named("a", 5), retention="pin"),
    {"at": 1, "do": "stats"},
    request(2, "c", "C", blocks=("c", 4)),
    finish(2, "c"),
    claim(2, "C", named("c", 4), retention="pin"),
    {"at": 2, "do": "stats"},
    request(3, "d", "D", blocks=("d", 80)),
    show(3, named("a", 30)),
    {"at": 4, "do": "release_all"},
    {"at": 4, "do": "stats"},
    show(4, named("d", 80)),
    finish(5, "d"),
]


def test_c11_more_pins_than_the_budget(tmp_path: Path) -> None:
    """`granted` is the case's `pinned`. D needs 80 blocks of 100: the pinned ones stay, A's soft tail makes room."""
    before = [*PINS[:3], show(0, named("a", 30))]
    policy = "limit any { hold: at most 20% of gpu }\n"
    shown = play(tmp_path, before, policy, "--blocks", "100")[-1]["blocks"]
    assert [row["protected"] for row in shown] == [True] * 20 + [False] * 10
    assert {row["rank"] for row in shown} == {35}

    answers = play(tmp_path, PINS, policy, "--blocks", "100")
    a, b, after_b, c, after_c = answers[2], answers[3], answers[4], answers[7], answers[8]
    assert [(h["status"], h["requested"], h["granted"]) for h in a["hints"]] == [("clipped", 30, 20)]
    assert b["hints"][0]["status"] == "accepted"
    assert after_b["protected"] == 20  # a block pinned twice uses the budget once
    assert [(h["status"], h["requested"], h["granted"]) for h in c["hints"]] == [("clipped", 4, 0)]
    assert after_c["protected"] == 20
    d, left = answers[9], answers[10]["blocks"]
    assert len(d["stored"]) == 80
    assert [row["state"] for row in left[:20]] == ["resident"] * 20
    assert answers[12]["protected"] == 0
    assert all(row["state"] == "resident" and not row["evictable"] for row in answers[13]["blocks"])
    assert answers[14]["status"] == "accepted"


def saturated(policy_spans: bool) -> list[Row]:
    """Five sessions of 40 blocks in a pool of 100, twice round; a session without a tag at the end."""
    steps: list[Row] = []
    for turn in range(10):
        name = f"s{turn % 5}"
        spans = [span("turn", 0, 640, name="top")] if policy_spans else []
        steps.append(request(turn, f"r{turn}", name, blocks=(name + "-", 40), spans=spans))
        steps.append(finish(turn, f"r{turn}", finished=True))
    steps.append({"at": 10, "do": "stats"})
    steps.append(show(10, named("s4-", 40)))
    steps.append(request(11, "untagged", "u", blocks=("u", 20)))
    return steps


def test_c13_everything_is_top_priority(tmp_path: Path) -> None:
    ranked = play(tmp_path, saturated(True), "turn[name = top] { priority: 100 }\n", "--blocks", "100")
    plain = play(tmp_path, saturated(False), None, "--blocks", "100")
    for key in ("evicted", "cached_tokens", "stored"):
        assert [a.get(key) for a in ranked] == [a.get(key) for a in plain]
    assert ranked[4]["evicted"] == [f"s0-{i}" for i in range(39, 19, -1)]  # the third session: the tail first
    codes = [n["code"] for answer in ranked for n in answer.get("notices", ())]
    assert codes.count("PRIORITY_SATURATED") == 1
    assert "PRIORITY_SATURATED" not in str(plain)
    assert ranked[20]["top_band_share"] == 1.0
    assert set(ranks(ranked[21])) == {100}  # nobody's level was changed for it
    assert len(ranked[22]["stored"]) == 20
