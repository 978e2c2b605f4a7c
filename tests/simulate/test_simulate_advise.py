"""`kvp advise`: a trace that a policy helps, one that none does, and a service's log read as a trace."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from kvpolicy.cli.main import COMMANDS, main
from kvpolicy.steering import replanning
from tests.simulate.traces_for_tests import read, write


def _tools_and_humans(path: Path) -> Path:
    """Twenty sessions that call tools every 5 s, among eighty prompts that nobody sends again."""
    draw, rows, fresh = random.Random(4), [], 10_000
    for session in range(20):
        start = draw.uniform(0, 100)
        for turn in range(12):
            ids = [1000 * session + k for k in range(4 + turn)]
            rows.append(
                {
                    "at": start + 5.0 * turn,
                    "owner": {"session": f"s{session}"},
                    "tokens": 16 * len(ids),
                    "hashes": ids,
                    "answer": {"stop": "tool_use", "tool_calls": ["grep"], "output_tokens": 20},
                }
            )
    for k in range(400):
        fresh += 100
        owner = {"session": f"once{k}"}
        ids = list(range(fresh, fresh + 12))
        rows.append(
            {
                "at": draw.uniform(0, 160),
                "owner": owner,
                "tokens": 16 * len(ids),
                "hashes": ids,
                "answer": {"stop": "end_turn", "output_tokens": 300},
            }
        )
    rows.sort(key=lambda row: row["at"])
    return write(path, [{"kvpolicy_trace": 1, "block_size": 16, "time_unit": "s"}, *rows])


def _advice(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, object]]:
    assert main(["advise", *words, "--format", "json", "--jobs", "2"]) == 0
    found = json.loads(capsys.readouterr().out)["advice"]
    assert isinstance(found, list)
    return found


def test_a_policy_that_helps_is_named_with_what_it_saves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = _tools_and_humans(tmp_path / "t.jsonl")
    (one,) = _advice(capsys, str(trace), "--capacity", "120", "--policy", "coding_agent", "--policy", "base")
    assert one["policy"] == "coding_agent"
    low, high = one["saved_interval"]  # type: ignore[misc]
    assert 0.02 < low <= one["saved_share"] <= high <= 1.0  # type: ignore[operator]
    assert one["hit_ratio"] > one["lru_hit_ratio"]  # type: ignore[operator]
    assert one["tried"]["base"] < one["tried"]["coding_agent"] <= one["bound_saves"]  # type: ignore[index]
    assert one["lru_blocks_for_the_same"] is None or one["lru_blocks_for_the_same"] > 120  # type: ignore[operator]


def test_none_is_advised_where_everything_fits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = _tools_and_humans(tmp_path / "t.jsonl")
    (one,) = _advice(capsys, str(trace), "--capacity", "100000")
    assert one["policy"] is None and "fits" in str(one["why"])


def test_none_is_advised_where_nothing_comes_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"timestamp": 1000 * k, "input_length": 32, "output_length": 1, "hash_ids": [2 * k, 2 * k + 1]}
        for k in range(90)
    ]
    trace = write(tmp_path / "m.jsonl", [{**row, "input_length": 1024} for row in rows])
    (one,) = _advice(capsys, str(trace), "--capacity", "20", "--policy", "chat_rag")
    assert one["policy"] is None and one["saved_tokens"] == 0


def _little(path: Path, calls: int) -> Path:
    """Sessions of two calls each; the first session's second call comes when its blocks may be gone."""
    rows = [
        {"at": float(k), "owner": {"session": f"s{k % (calls // 2)}"}, "tokens": 32, "hashes": [2 * s, 2 * s + 1],
         "answer": {"stop": "tool_use", "tool_calls": ["grep"], "output_tokens": 1}}
        for k in range(calls) for s in [k % (calls // 2)]
    ]  # fmt: skip
    return write(path, [{"kvpolicy_trace": 1, "block_size": 16, "time_unit": "s"}, *rows])


def test_where_lru_computes_nothing_twice_nobody_saves_all_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"at": 0.0, "tokens": 32, "hashes": [1, 2]}, {"at": 1.0, "tokens": 32, "hashes": [1, 2]}]
    rows += [{"at": 2.0 + k, "tokens": 32, "hashes": [10 + 2 * k, 11 + 2 * k]} for k in range(18)]
    trace = write(tmp_path / "t.jsonl", [{"kvpolicy_trace": 1, "block_size": 16, "time_unit": "s"}, *rows])
    words = [str(trace), "--capacity", "10", "--policy", "adaptive", "--policy", "fifo"]
    (one,) = _advice(capsys, *words)
    assert (one["policy"], one["lru_recomputed_tokens"], one["tried"], one["bound_saves"]) == (None, 0, {}, 0.0)
    assert main(["advise", *words, "--jobs", "2"]) == 0
    said = capsys.readouterr().out
    assert "none would help: lru computes nothing twice, so there is nothing to save" in said and "100.0 %" not in said


def test_what_is_not_surely_better_is_said_with_the_figures_that_judged_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The winner of the half that chooses need not be that of the whole trace, so both say what they are of."""
    trace = _tools_and_humans(tmp_path / "t.jsonl")
    words = [str(trace), "--capacity", "250", "--policy", "fifo", "--policy", "lru"]
    (one,) = _advice(capsys, *words)
    low, high = one["saved_interval"]  # type: ignore[misc]
    assert one["policy"] is None
    share = f"saves {100 * one['saved_share']:.1f} % [{100 * low:.1f}, {100 * high:.1f}] on the other "  # type: ignore[operator]
    assert "did best on the half that chooses (" in str(one["why"]) and share in str(one["why"])
    assert main(["advise", *words, "--jobs", "2"]) == 0
    said = capsys.readouterr().out
    assert f"saved by each over the whole trace, of {one['lru_recomputed_tokens']:,} tokens that lru" in said


def test_a_large_share_of_little_is_told_as_such(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (one,) = _advice(capsys, str(_little(tmp_path / "t.jsonl", 8)), "--capacity", "4", "--policy", "sglang-lfu")
    assert one["policy"] is None and "does best, and saves " in str(one["why"]) and "over 4 sessions" in str(one["why"])


def test_no_help_shows_an_escaped_sign(capsys: pytest.CaptureFixture[str]) -> None:
    for name in COMMANDS:
        with pytest.raises(SystemExit):
            main([name, "--help"])
        assert "%%" not in capsys.readouterr().out, name


def test_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = _tools_and_humans(tmp_path / "t.jsonl")
    assert main(["advise", str(trace), "--capacity", "120,100000", "--policy", "coding_agent"]) == 0
    said = capsys.readouterr().out
    assert "coding_agent: " in said and "fewer tokens computed twice" in said and "none would help" in said


def test_a_baseline_is_measured_session_by_session_like_a_policy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = _tools_and_humans(tmp_path / "t.jsonl")
    policies = [word for name in ("fifo", "lru", "sglang-lfu", "fifo") for word in ("--policy", name)]
    (one,) = _advice(capsys, str(trace), "--capacity", "120", *policies)
    tried = one["tried"]
    assert tried.keys() == {"fifo", "lru", "sglang-lfu"}  # type: ignore[attr-defined]
    assert tried["fifo"] < tried["lru"] == 0.0 < tried["sglang-lfu"]  # type: ignore[index]
    (alone,) = _advice(capsys, str(trace), "--capacity", "250", "--policy", "fifo")  # its sessions, not no sessions
    assert alone["policy"] is None and alone["saved_interval"][1] < 0.0 < alone["bound_saves"]  # type: ignore[index, operator]


@pytest.mark.parametrize("name", ["belady", "belady-resident", "oracle-tool-times"])
def test_what_knows_the_future_is_no_candidate(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = _tools_and_humans(tmp_path / "t.jsonl")
    assert main(["advise", str(trace), "--capacity", "120", "--policy", "base", "--policy", name]) == 2
    said = capsys.readouterr().err
    assert f"--policy {name}: it knows what comes" in said and "Traceback" not in said


def test_a_policy_that_breaks_is_told_and_not_advised(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = replanning.plan

    def broken(policy: Any, *args: Any, **more: Any) -> Any:
        if policy.name == "adaptive":
            raise RuntimeError("no")
        return plan(policy, *args, **more)

    monkeypatch.setattr(replanning, "plan", broken)
    trace = _tools_and_humans(tmp_path / "t.jsonl")
    words = ["--capacity", "120", "--policy", "adaptive"]
    (alone,) = _advice(capsys, str(trace), *words)
    assert alone["policy"] is None and "broke" in str(alone["why"])
    assert alone["planning_failures"]["adaptive"] > 100  # type: ignore[index]
    (one,) = _advice(capsys, str(trace), *words, "--policy", "coding_agent")
    assert one["policy"] == "coding_agent" and one["planning_failures"].keys() == {"adaptive"}  # type: ignore[attr-defined]
    assert main(["advise", str(trace), *words, "--policy", "coding_agent"]) == 0
    assert "note: planning broke" in capsys.readouterr().out


def _logged(at: float, owner: str | None, tokens: int | None, tools: int = 0, model: str = "m") -> dict[str, object]:
    spans = [{"kind": "system", "tokens": 64, "priority": 50}, {"kind": "turn", "tokens": None, "priority": 35}]
    return {
        "at": 1_700_000_000 + at,
        "id": "x",
        "tenant": "t",
        "owner": owner,
        "run": None,
        "model": model,
        "digest": "d",
        "outcome": "done",
        "seconds": 2.0,
        "spans": spans,
        "prompt_tokens": tokens,
        "output_tokens": 10,
        "tool_calls": tools,
    }


def test_a_decision_log_is_a_trace(tmp_path: Path) -> None:
    rows = [
        _logged(10, "a", 200, tools=1),
        _logged(11, "b", 130),
        _logged(9, None, 130),
        _logged(12, "c", None),
        _logged(20, "a", 330),
        _logged(30, "a", 100),
        _logged(40, "a", 140, model="n"),
    ]
    calls, facts = read(write(tmp_path / "log.jsonl", rows))
    assert facts.form == "decision log" and facts.sessions == 2
    assert [call.at for call in calls] == [0.0, 1.0, 10.0, 20.0, 30.0]
    first, other, grown, anew, model = (list(call.hashes) for call in calls)
    assert grown[: len(first)] == first and len(grown) == 330 // 64
    assert not set(first) & set(other) and not set(anew) & set(grown) and not set(model) & set(anew)
    assert calls[0].answer.stop == "tool_use" and calls[1].answer.stop == "end_turn"
    assert [(s.kind, s.end) for s in calls[0].request.spans] == [("system", 64), ("turn", 200)]
    assert any("2 rows" in notice.message for notice in facts.notices)


def test_a_log_with_digests_shows_what_sessions_share(tmp_path: Path) -> None:
    """Two sessions begin with one head; a part that ended a prompt has its length, the others are spread evenly."""
    rows = [
        {**_logged(10, "a", 400), "prefix": ["head", "a1"]},
        {**_logged(20, "b", 460), "prefix": ["head", "b1"]},
        {**_logged(30, "a", 900), "prefix": ["head", "a1", "a2", "a3"]},
        {**_logged(40, "a", 700), "prefix": ["head", "a1", "x"]},  # the history was edited
        {**_logged(50, "b", 460, model="n"), "prefix": ["head", "b1"]},
        {**_logged(60, "a", 300), "prefix": ["head"]},  # counted otherwise than it was spread
        _logged(70, "c", 130),
    ]
    calls, facts = read(write(tmp_path / "log.jsonl", rows))
    a, b, grown, edited, model, head, without = (list(call.hashes) for call in calls)
    assert [len(each) for each in (a, b, grown, edited, model, head)] == [6, 7, 14, 10, 7, 4]
    assert a[:3] == b[:3] and not set(a[3:]) & set(b)  # the head is taken for half of the first prompt: 200 tokens
    assert grown[:6] == a and edited[:6] == a and not set(edited[6:]) & set(grown)
    assert head[:3] == a[:3] and not set(model) & set(b) and not set(without) & {*a, *b, *grown}
    (said,) = (notice.message for notice in facts.notices)
    assert "digests of messages" in said and "in 1 rows without digests they" in said


@pytest.mark.parametrize("prefix", [3, ["a", 4], "a"])
def test_digests_that_are_none_are_refused_with_the_line(
    prefix: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = write(tmp_path / "log.jsonl", [_logged(10, "a", 400), {**_logged(11, "a", 500), "prefix": prefix}])
    assert main(["advise", str(log), "--capacity", "4"]) == 2
    assert "log.jsonl:2: prefix is" in capsys.readouterr().err
