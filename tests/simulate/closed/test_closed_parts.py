"""What comes when, tiers and links, the released Continuum's pins, models, and the command line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kvpolicy.cli.main import main
from kvpolicy.faults import InputFault
from kvpolicy.simulate.closed.continuum import ContinuumReleased
from kvpolicy.simulate.closed.demand import schedule_of
from kvpolicy.simulate.closed.frozen import digest
from kvpolicy.simulate.closed.models import MODELS, engine_model
from kvpolicy.simulate.names import Contender
from tests.simulate.closed.closed_stubs import MODEL, SIZE, run, sessions, turn

ROOT = Path(__file__).resolve().parents[3]


def test_the_model_is_the_one_that_was_compared_with_vllm() -> None:
    page = (ROOT / "docs" / "closed-loop.md").read_text(encoding="utf-8")
    assert digest() in page, "the modelled engine changed: compare it with vLLM again, then state its new digest"


def test_waits_and_pauses_follow_recorded_ends() -> None:
    calls = [
        turn("a", 32, 4, at=0.0, took=5.0, name="one"),
        turn("a", 64, 4, at=7.0, took=1.0, name="two"),
        turn("a", 40, 4, at=8.5, took=20.0, branch="sub", name="sub1"),
        turn("a", 48, 4, at=30.0, took=2.0, branch="sub", name="sub2"),
        turn("a", 80, 4, at=33.0, took=1.0, name="three"),
        turn(None, 32, 4, at=40.0, name="free"),
    ]
    rows = {d.call.request.id: d for d in schedule_of(calls).demands}
    assert (rows["two"].waits, rows["two"].pause) == (1, 2.0)
    assert (rows["sub1"].waits, rows["sub1"].pause) == (1, 0.5)
    assert rows["sub2"].pause == pytest.approx(1.5)
    assert (rows["three"].waits, rows["three"].pause) == (2, pytest.approx(1.0))  # joins the branch
    assert rows["free"].waits == 0
    assert rows["three"].last
    assert not rows["sub2"].last


def test_a_stated_join_waits_for_all_and_an_unknown_id_is_told() -> None:
    calls = [
        turn("a", 32, 4, name="root"),
        turn("a", 48, 4, branch="x", name="x", waits_for=("root",), pause=1.0),
        turn("a", 48, 40, branch="y", name="y", waits_for=("root",), pause=3.0),
        turn("a", 64, 4, name="judge", waits_for=("x", "y"), pause=0.5),
    ]
    schedule = schedule_of(calls)
    assert schedule.demands[3].waits == 3
    tally, _ = run(schedule, 100)
    assert tally.session_s[0] > 40 * MODEL.step_s(1) + 3.5
    with pytest.raises(InputFault, match="waits for nobody"):
        schedule_of([turn("a", 32, 4, waits_for=("nobody",))])


def test_an_event_comes_as_long_after_its_call_as_it_was_recorded() -> None:
    ends = {"at": 6.0, "event": "session_end", "session": "a"}
    calls = [turn("a", 32, 4, at=0.0, took=4.0), turn("b", 32, 4, at=9.0, before=(ends,))]
    assert schedule_of(calls).demands[0].after == [(2.0, ends)]


def test_a_lower_tier_is_reloaded_where_that_is_sooner_and_computed_again_where_not() -> None:
    calls = [turn("a", 640, 2), turn("b", 640, 2, at=10.0), turn("a", 680, 2, pause=30.0)]
    block = SIZE * MODEL.token_bytes
    fast, _ = run(calls, 45, cpu_blocks=100, model=replace(MODEL, link=1000 * block))
    slow, _ = run(calls, 45, cpu_blocks=100, model=replace(MODEL, link=2 * block))
    none, _ = run(calls, 45)
    assert fast.cached_tokens == 640
    assert slow.cached_tokens == none.cached_tokens < 640
    assert fast.ttft[2] < slow.ttft[2] == pytest.approx(none.ttft[2], rel=0.2)
    assert fast.moved_bytes > slow.moved_bytes > 0
    assert none.moved_bytes == 0


def test_a_reload_takes_its_time_and_others_run_meanwhile() -> None:
    calls = [turn("a", 640, 2), turn("b", 640, 2, at=10.0), turn("a", 680, 2, pause=30.0, name="back")]
    block = SIZE * MODEL.token_bytes
    model = replace(MODEL, link=400 * block, overhead_s=0.1)
    tally, loop = run(calls, 45, cpu_blocks=100, model=model)
    lost = 40 - (45 - 41)
    assert tally.cached_tokens == 640
    assert tally.ttft[2] > lost / 400
    assert tally.ttft[2] < lost / 400 + 2 * model.step_s(40)
    assert loop.links is not None


def test_a_prefetch_that_comes_late_is_waited_for() -> None:
    text = (
        "policy p\nturn { priority: 60 tier: gpu, cpu after 1s }\n"
        "on step_start until turn_start { turn { prefetch: yes tier: gpu } }\n"
    )
    policy = Contender("p", "policy", False, text=text).policy()
    block, step = SIZE * MODEL.token_bytes, {"at": 4.0, "event": "step_start", "session": "a"}
    model = replace(MODEL, link=20 * block)  # two seconds for 40 blocks
    calls = [turn("a", 640, 2, tool=None), turn("a", 680, 2, pause=5.0, tool=None, before=(step,))]
    late, _ = run(calls, 100, cpu_blocks=100, policy=policy, model=model)
    assert late.late_prefetches == 1
    assert late.cached_tokens == 640
    assert late.ttft[1] == pytest.approx(1.0, abs=0.2)  # it began 4 s after the answer, the call came after 5
    calls[1].pause = 9.0
    early, _ = run(calls, 100, cpu_blocks=100, policy=policy, model=model)
    assert (early.late_prefetches, early.cached_tokens) == (0, 640)
    assert early.ttft[1] < 0.1


def test_a_pin_keeps_memory_from_others_and_ends_after_two_seconds() -> None:
    busy, big = turn("c", 32, 400), turn("b", 400, 2, at=0.2)
    quick = [busy, turn("a", 320, 2), big, turn("a", 352, 2, pause=1.5, name="back")]
    pinned, _ = run(quick, 45, order=ContinuumReleased())
    plain, _ = run(quick, 45)
    assert pinned.cached_tokens == 320
    assert plain.cached_tokens < 320
    assert max(pinned.waits) > 1.4  # big waits for the memory that a holds
    assert max(plain.waits) < 0.1
    slow = [busy, turn("a", 320, 2), big, turn("a", 352, 2, pause=9.0, name="back")]
    assert max(run(slow, 45, order=ContinuumReleased())[0].waits) == pytest.approx(2.0, abs=0.1)


def test_models_are_named_changed_and_refused() -> None:
    assert engine_model("h100-8b").step_s(2048) == pytest.approx(0.0237 + 2048 * 25.8e-6)
    assert engine_model("a100-8b:link=2e9,chunk=512").chunk == 512
    assert all(model.source for model in MODELS.values())
    for text, said in (
        ("h900", "there are h100-8b"),
        ("h100-8b:speed=2", "no change"),
        ("h100-8b:chunk=1.5", "whole number"),
        ("h100-8b:link=nan", "a number"),
        ("h100-8b:overhead_s=0,token_s=0", "no time"),
    ):
        with pytest.raises(InputFault, match=said):
            engine_model(text)


def test_the_command_line_gives_the_latency_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "t.jsonl"
    rows: list[dict[str, object]] = [{"kvpolicy_trace": 1, "block_size": SIZE, "time_unit": "s"}]
    for call in sessions(1, count=4):
        row: dict[str, object] = {"at": call.at, "id": call.request.id, "tokens": call.request.tokens}
        row |= {"hashes": list(call.hashes), "owner": {"session": call.request.owner.session}}
        row |= {"answer": {"stop": "tool_use", "tool_calls": ["grep"], "output_tokens": call.answer.output_tokens}}
        rows.append(row if call.pause is None else {**row, "pause": call.pause})
    trace.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    words = ["simulate", str(trace), "--engine-model", "h100-8b", "--capacity", "40,5000", "--format", "json"]
    assert main([*words, "--policy", "lru", "--policy", "continuum-released", "--jobs", "2"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [run["policy"] for run in document["runs"]] == ["lru", "continuum-released"] * 2
    for one in document["runs"]:
        assert one["ttft_s"]["p50"] > 0
        assert one["session_s"]["mean"] > 0
        assert one["cached_tokens_per_s"] >= 0
        assert one["uncached_tokens_per_s"] > 0
        assert one["gap_closed"] is None
    assert document["engine_model"]["digest"] == digest()
    codes = [notice["code"] for notice in document["notices"]]
    assert codes == ["NO_PRESSURE", "CAPACITY_TOO_SMALL", "CAPACITY_TOO_SMALL"][: len(codes)]
    assert "NO_PRESSURE" in codes
    assert main([*words, "--policy", "belady"]) == 2
    assert "does not go with --engine-model" in capsys.readouterr().err
