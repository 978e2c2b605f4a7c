"""Every kind of step, and steps that cannot be read: one line with file and line, exit status 2, never a traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvpolicy.faults import InputFault
from kvpolicy.replay import Replay
from kvpolicy.replay.replay import STEPS
from tests.replay.timeline_steps import finish, named, play, ranks, refusal, request, show, span

Row = dict[str, Any]
OK = request(0, "r", "s", blocks=("b", 2))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([OK, "{"], "kvp: timeline.jsonl:2: not JSON"),
        ([OK, "", "[1]"], "kvp: timeline.jsonl:3: a step is a JSON object"),
        (["\x00\x01"], "kvp: timeline.jsonl:1: not JSON"),
        ([], "kvp: timeline.jsonl: no step in it"),
        ([{"at": 0, "do": "reqest", "id": "r"}], "timeline.jsonl:1: 'reqest' is no step; did you mean 'request'?"),
        ([{"at": 0}], "timeline.jsonl:1: 'do' is missing"),
        ([{"at": 0, "do": ["show"]}], "timeline.jsonl:1: '['show']' is no step"),
        ([{"do": "advance"}], "timeline.jsonl:1: advance: 'at' is missing"),
        ([{"at": "0", "do": "advance"}], "advance: at: a time in seconds, from 0 to 1e+15 is needed, not '0'"),
        ([{"at": 1e15, "do": "advance"}], "advance: at: a time in seconds"),
        ([{"at": -1, "do": "advance"}], "advance: at: a time in seconds"),
        (['{"at": NaN, "do": "advance"}'], "timeline.jsonl:1: not JSON"),
        ([{"at": 5, "do": "advance"}, {"at": 3, "do": "advance"}], "timeline.jsonl:2: at: 3 is before 5"),
        ([{"at": 0, "do": "request", "tokens": [1]}], "request: 'id' is missing"),
        ([OK, {"at": 1, "do": "progress", "id": "r", "accepted": 1 << 52}], "accepted: at most 1048576 tokens"),
        ([{"at": 0, "do": "request", "id": "r"}], "request: 'tokens' (a list of token ids) or 'hashes' is missing"),
        ([{"at": 0, "do": "request", "id": "r", "tokens": "abc"}], "request: tokens: a list of token ids"),
        ([{"at": 0, "do": "request", "id": "r", "tokens": [1.5]}], "request: tokens: a list of token ids"),
        ([{"at": 0, "do": "request", "id": "r", "tokens": [1], "spanz": []}], "request: unknown key 'spanz'"),
        ([{"at": 0, "do": "request", "id": "r", "hashes": ["a", "a"]}], "request: hashes: one occurs twice"),
        ([{"at": 0, "do": "request", "id": "r", "hashes": ["a"], "tokens": 40}], "40 tokens are not 1 blocks of 16"),
        ([OK | {"owner": {"sesion": "s"}}], "owner: unknown key 'sesion'"),
        ([OK | {"owner": "s"}], "request: owner: an object with tenant, session"),
        ([OK | {"spans": [span("turm", 0, 16)]}], "unknown kind 'turm'; did you mean turn?"),
        ([OK | {"spans": [span("turn", 0, 20), span("turn", 16, 32)]}], "spans 0 and 1 overlap"),
        ([OK, {"at": 1, "do": "progress", "id": "r"}], "progress: 'computed' or 'accepted' is needed"),
        ([OK, finish(1, "r", tool_calls=[3])], "finish: tool_calls: names of tools"),
        ([OK, finish(1, "r", finishd=True)], "finish: unknown key 'finishd'; did you mean 'finished'?"),
        ([request(0, "r", tokens=[1]), {"at": 1, "do": "progress", "id": "r", "accepted": 2}], "token ids are needed"),
        ([{"at": 0, "do": "evict"}], "evict: 'count' is missing"),
        ([{"at": 0, "do": "evict", "count": -1}], "evict: count: a whole number"),
        ([{"at": 0, "do": "show", "blocks": "b0"}], "show: blocks: a list of block names"),
        ([{"at": 0, "do": "claim", "owner": {}}], "claim: 'blocks' is missing"),
        ([{"at": 0, "do": "event", "event": "tool_call"}], "event: event: an object is needed"),
        ([{"at": 0, "do": "kv_event", "worker": "w", "sequence": True, "event": {}}], "kv_event: sequence"),
        ([{"at": 0, "do": "lookup", "worker": "w"}], "lookup: 'blocks' is missing"),
        ([{"at": 0, "do": "worker", "worker": "w", "block_size": 0}], "worker: block_size"),
    ],
)
def test_a_step_that_cannot_be_read(tmp_path: Path, lines: list[str | Row], message: str) -> None:
    assert message in refusal(tmp_path, lines)


def test_sizes_that_cannot_be(tmp_path: Path) -> None:
    assert "a pool needs at least one block" in refusal(tmp_path, [OK], "--blocks", "0")
    assert "a block has at least one token" in refusal(tmp_path, [OK], "--block-size", "0")
    assert "fewer than 0 blocks" in refusal(tmp_path, [OK], "--cpu-blocks", "-3")
    assert "more than a replay has room for" in refusal(tmp_path, [OK], "--blocks", "1000000000000")


def test_the_answers_before_a_bad_step_stand() -> None:
    lines = '{"at": 0, "do": "advance"}\n{"at": 1, "do": "x"}\n'
    words = [sys.executable, "-m", "kvpolicy", "replay", "-", "--format", "json"]
    done = subprocess.run(words, input=lines, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == '{"step":1,"at":0.0,"do":"advance"}\n'
    assert done.stderr.startswith("kvp: <stdin>:2: 'x' is no step")


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ({"do": "claim", "blocks": ["b0"], "priority": 101}, "priority: a whole number from 0 to 100"),
        ({"do": "claim", "blocks": ["b0"], "priority": "high"}, "priority: a whole number"),
        ({"do": "claim", "blocks": ["b0"], "priority": 50, "ttl": "300"}, "ttl: a duration needs a unit"),
        ({"do": "claim", "blocks": ["b0"], "ttl": 300}, "ttl: a duration with its unit is needed"),
        ({"do": "claim", "blocks": ["b0"], "ttl": "5 minuts"}, "ttl: 'minuts' is not a unit"),
        ({"do": "claim", "blocks": ["b0"], "retention": "keep"}, "retention: 'keep' is none of"),
        ({"do": "claim", "blocks": ["b0"], "retention": "hold until nothing"}, "'nothing' is no event"),
        ({"do": "claim", "blocks": ["b0"], "retention": "pin", "hold": "3s"}, "one of them is enough"),
        ({"do": "claim", "blocks": ["b0"], "for": "ever"}, "for: 'ever' is no lifetime"),
        ({"do": "event", "event": {"event": "tool_cal"}}, "'tool_cal' is no event"),
        ({"do": "event", "event": {"event": "tool_call", "at": 99}}, "which has not come yet"),
        ({"do": "kv_event", "worker": "w", "sequence": 0, "event": {"type": "gone"}}, "'gone' is no KV event"),
    ],
)
def test_a_hint_that_cannot_be_followed_is_answered(tmp_path: Path, step: Row, reason: str) -> None:
    (hint,) = play(tmp_path, [OK, {"at": 1, **step}])[1]["hints"]
    assert hint["status"] == "rejected" and reason in hint["reason"]


@pytest.mark.parametrize("do", ["finish", "cancel", "preempt", "resume", "progress"])
def test_a_request_that_does_not_run_is_unknown(tmp_path: Path, do: str) -> None:
    more = {"computed": 3} if do == "progress" else {}
    (answer,) = play(tmp_path, [{"at": 0, "do": do, "id": "nobody", **more}])
    assert answer["hints"] == [
        {"status": "unknown", "requested": 0, "granted": 0, "reason": "no request 'nobody' runs"}
    ]


def test_an_id_that_runs_already_is_refused(tmp_path: Path) -> None:
    second = play(tmp_path, [OK, request(1, "r", "s", hashes=["c"])])[1]
    assert second["status"] == second["hints"][0]["status"] == "rejected"
    assert second["stored"] == []


def test_names_of_blocks(tmp_path: Path) -> None:
    """A block that came as tokens is called after the request that stored it; every name for it is understood."""
    steps = [
        request(0, "a", "s", tokens=list(range(40))),
        finish(0, "a"),
        request(1, "b", "s", tokens=list(range(60))),
        finish(1, "b"),
        show(1, ["a:0", "b:1", "b:2", "b:3", "b:4", "c:0", 7]),
        {"at": 2, "do": "evict", "count": 10},
        show(2, ["a:0", "b:2", "zzz"]),
        request(3, "n", "s", hashes=[1, 2, "2"]),
        show(3, [1, 2, "2", "n:1"]),
    ]
    answers = play(tmp_path, steps)
    assert answers[2]["stored"] == ["b:2"] and answers[2]["cached_tokens"] == 32
    states = [row["state"] for row in answers[4]["blocks"]]
    assert states == ["resident", "resident", "resident", "partial", "unknown", "unknown", "unknown"]
    assert answers[5]["evicted"] == ["b:2", "a:1", "a:0"]
    assert [row["state"] for row in answers[6]["blocks"]] == ["absent", "absent", "unknown"]
    assert answers[7]["stored"] == [1, 2, "2"]
    assert [row["state"] for row in answers[8]["blocks"]] == ["resident"] * 4


def test_a_claim_says_what_was_missing(tmp_path: Path) -> None:
    steps = [
        request(0, "r", "s", blocks=("b", 4)),
        finish(0, "r"),
        {"at": 1, "do": "evict", "count": 2},
        {"at": 2, "do": "claim", "owner": {"session": "x"}, "blocks": [*named("b", 4), "never"], "priority": 70},
        show(2, named("b", 4)),
        {"at": 3, "do": "claim", "owner": {"session": "x"}, "blocks": ["never"], "priority": 70},
        {"at": 3, "do": "claim", "owner": {"session": "x"}, "blocks": ["b3"], "priority": 70},
    ]
    answers = play(tmp_path, steps)
    claimed = answers[3]
    assert claimed["resident"] == ["b0", "b1"] and claimed["missing"] == ["b2", "b3", "never"]
    assert (claimed["hints"][0]["status"], claimed["hints"][0]["granted"]) == ("deferred", 2)
    assert ranks(answers[4]) == [70, 70, None, None]
    assert answers[5]["hints"][0]["status"] == "unknown"


def test_an_event_says_what_of_its_owners_is_there(tmp_path: Path) -> None:
    steps = [
        request(0, "r", "s", blocks=("b", 4)),
        finish(0, "r"),
        {"at": 1, "do": "evict", "count": 1},
        {"at": 2, "do": "event", "event": {"event": "turn_end", "session": "s"}},
        {"at": 2, "do": "event", "event": {"event": "turn_end", "session": "other"}},
    ]
    answers = play(tmp_path, steps, "on turn_end { turn { priority: 10 } }\n")
    assert answers[3]["hints"][0]["status"] == "accepted"
    assert answers[3]["resident"] == ["b0", "b1", "b2"] and answers[3]["missing"] == ["b3"]
    assert answers[4]["hints"][0]["status"] == "ignored" and answers[4]["resident"] == []


def test_claims_with_an_age_and_a_hold(tmp_path: Path) -> None:
    claim = {"at": 1, "do": "claim", "owner": {"session": "x"}, "blocks": ["b1"]}
    steps = [
        request(0, "r", "s", blocks=("b", 2)),
        finish(0, "r"),
        claim | {"priority": 60, "max_age": "1h", "hold": "30s"},
        show(30.9, ["b0"]),
        show(31, ["b0"]),
        show(3601, ["b0"]),
    ]
    answers = play(tmp_path, steps)
    assert [(a["blocks"][0]["rank"], a["blocks"][0]["protected"]) for a in answers[3:]] == [
        (60, True),
        (60, False),
        (35, False),
    ]


def test_a_chunked_request_finds_what_is_cached(tmp_path: Path) -> None:
    steps = [OK, finish(0, "r"), request(1, "r2", "s", blocks=("b", 4), computed=0)]
    again = play(tmp_path, steps)[2]
    assert again["cached_tokens"] == 32 and again["stored"] == []


def test_blocks_of_another_size_than_stated(tmp_path: Path) -> None:
    answers = play(tmp_path, [OK | {"block_size": 32}, OK | {"id": "r2", "block_size": 16}])
    assert [n["code"] for n in answers[0]["notices"]] == ["BLOCK_SIZE_MISMATCH"]
    assert "notices" not in answers[1]


def test_lower_tiers(tmp_path: Path) -> None:
    steps = [
        request(0, "r", "s", blocks=("b", 4)),
        finish(0, "r"),
        request(1, "q", "t", blocks=("c", 2)),
        show(1, named("b", 4)),
    ]
    answers = play(tmp_path, steps, None, "--blocks", "4", "--cpu-blocks", "4")
    assert answers[2]["evicted"] == ["b3", "b2"]
    assert [row["tier"] for row in answers[3]["blocks"]] == ["gpu", "gpu", "cpu", "cpu"]


def test_what_a_policy_brings_up_is_told(tmp_path: Path) -> None:
    """A rule's prefetch is no hit of a request; what a request finds below is, and is not told again."""
    policy = "on tool_call until tool_result { turn { tier: cpu } }\non tool_result { turn { prefetch: yes } }\n"
    event = {"do": "event", "event": {"session": "s", "tool": "grep", "call": "c"}}
    steps = [
        request(0, "r", "s", blocks=("b", 2)),
        finish(0, "r", tool_calls=[{"tool": "grep", "call": "c"}]),
        show(1, named("b", 2)),
        event | {"at": 2, "event": event["event"] | {"event": "tool_result"}},  # type: ignore[operator]
        show(2, named("b", 2)),
        request(3, "r2", "s", blocks=("b", 2)),
    ]
    answers = play(tmp_path, steps, policy, "--blocks", "8", "--cpu-blocks", "8")
    assert [row["tier"] for row in answers[2]["blocks"]] == ["cpu", "cpu"]
    assert sorted(answers[3]["prefetched"]) == ["b0", "b1"]
    assert [row["tier"] for row in answers[4]["blocks"]] == ["gpu", "gpu"]
    below = [*steps[:3], request(2, "r2", "s", blocks=("b", 2))]
    again = play(tmp_path, below, policy, "--blocks", "8", "--cpu-blocks", "8")[-1]
    assert again["cached_tokens"] == 32 and "prefetched" not in again


def test_lookup_by_tokens(tmp_path: Path) -> None:
    """Our own names of token runs find the engine's; a block of an adapter is none of them."""
    stored: Row = {"type": "stored", "hashes": ["e0", "e1"], "tokens": list(range(8)), "block_size": 4}
    other: Row = {"type": "stored", "hashes": ["l0"], "tokens": [9, 9, 9, 9], "block_size": 4, "lora": "x"}
    event: Row = {"at": 0, "do": "kv_event", "worker": "w", "rank": 0}
    steps = [
        {"at": 0, "do": "worker", "worker": "w", "block_size": 16, "incarnation": 1},
        event | {"sequence": 0, "event": stored},
        event | {"sequence": 1, "event": other},
        event | {"sequence": 2, "event": {"type": "stored", "hashes": ["e0"], "medium": "CPU"}},
        {"at": 1, "do": "lookup", "worker": "w", "tokens": [*range(8), 1, 2, 3, 4, 5]},
        {"at": 1, "do": "lookup", "worker": "w", "tokens": [9, 9, 9, 9]},
    ]
    answers = play(tmp_path, steps)
    assert [n["code"] for n in answers[1]["notices"]] == ["BLOCK_SIZE_MISMATCH"]
    rows = answers[4]["blocks"]
    assert [(row["block"], row["state"]) for row in rows] == [("e0", "present"), ("e1", "present"), (None, "absent")]
    assert rows[0]["tiers"] == ["gpu", "cpu"] and rows[0]["copies"] == 2
    assert [row["state"] for row in answers[5]["blocks"]] == ["absent"]


def test_the_text_form(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from kvpolicy.cli.main import main

    (tmp_path / "t.jsonl").write_text('{"at": 0, "do": "request", "id": "r", "hashes": ["a", "b"]}\n')
    assert main(["replay", str(tmp_path / "t.jsonl")]) == 0
    assert capsys.readouterr().out == "1  at 0  request  cached_tokens 0, stored a b, evicted -, hints -\n"


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 99) | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["session", "kind", "start", "type"]), inner, max_size=3)
    ),
    max_leaves=5,
)
KEYS = (
    "id",
    "owner",
    "tokens",
    "hashes",
    "spans",
    "key",
    "computed",
    "accepted",
    "event",
    "count",
    "blocks",
    "block",
    "priority",
    "ttl",
    "hold",
    "retention",
    "for",
    "max_age",
    "worker",
    "rank",
    "sequence",
    "groups",
    "turn",
    "incarnation",
    "tool_calls",
    "finished",
    "model",
    "extra",
)
GOOD = {
    "id": st.sampled_from(["a", "b"]),
    "hashes": st.lists(st.sampled_from("vwxyz"), max_size=4, unique=True),
    "blocks": st.lists(st.sampled_from("vwxyz"), max_size=3),
    "count": st.integers(0, 3),
    "event": st.sampled_from(
        [{"event": "turn_end", "session": "s"}, {"type": "stored", "hashes": ["x"]}, {"event": "cancel"}]
    ),
    "owner": st.sampled_from([{"session": "s"}, {}, {"agent": "g"}]),
    "worker": st.just("w"),
    "sequence": st.integers(0, 4),
    "block": st.sampled_from("vwxyz"),
}


@st.composite
def steps(draw: st.DrawFn) -> Row:
    """A step whose fields mostly fit, and sometimes are anything at all."""
    step: Row = {"at": draw(st.integers(0, 3)), "do": draw(st.sampled_from(list(STEPS)))}
    for key, value in GOOD.items():
        if draw(st.integers(0, 9)) > 3:
            step[key] = draw(value)
    if draw(st.integers(0, 2)) == 0:
        step[draw(st.sampled_from(KEYS))] = draw(JUNK)
    allowed = {"finish": {"id"}, "cancel": {"id"}, "show": {"blocks"}, "evict": {"count"}, "split": {"block"}}
    keep = allowed.get(step["do"])
    return {k: v for k, v in step.items() if keep is None or k in keep or k in ("at", "do")}


@given(st.lists(steps(), max_size=25))
@settings(max_examples=150)
def test_whatever_comes_is_answered_or_refused(timeline: list[Row]) -> None:
    replay = Replay(blocks=6, block_size=4)
    at = 0
    for step in timeline:
        at += step["at"]
        try:
            answer = replay.step(step | {"at": at})
        except InputFault as fault:
            assert str(fault)
        else:
            assert answer["at"] == at and answer["do"] == step["do"]
    assert replay.stage.steering.counters["failures"] == 0
