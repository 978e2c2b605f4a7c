"""The bench: its arithmetic on rows that are known, hints that are wrong, and going on where it stopped."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvpolicy.cli.main import main
from kvpolicy.simulate import bench_experiments
from kvpolicy.simulate.bench_arithmetic import bootstrap, figures
from kvpolicy.simulate.bench_cells import Cell, measure
from kvpolicy.simulate.bench_experiments import EXPERIMENTS, Experiment
from kvpolicy.simulate.bench_hints import HINTS, told
from kvpolicy.simulate.bench_run import rows_of, run
from kvpolicy.simulate.report_page import as_html, as_json, as_markdown
from tests.bench import closed_loop
from tests.simulate.traces_for_tests import call, write


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Experiment:
    """Six sessions that go on after pauses of their own, as an experiment of its own."""
    rows: list[dict[str, Any]] = []
    for session in range(6):
        for turn in range(8):
            ids = [100 * session + k for k in range(3 + turn)]
            answer = {"stop": "tool_use" if turn % 4 else "end_turn", "output_tokens": 30}
            at = (3.0 + 4 * (session % 3)) * turn + session
            owner = {"session": f"s{session}"}
            rows.append({"at": at, "owner": owner, "tokens": 16 * len(ids), "hashes": ids, "answer": answer})
    rows.sort(key=lambda row: row["at"])
    path = write(tmp_path / "t.jsonl", [{"kvpolicy_trace": 1, "block_size": 16, "time_unit": "s"}, *rows])
    experiment = Experiment(
        "Small.", str(path), ("lru", "belady-resident", "fifo", "adaptive"), (30.0, 60.0), seeds=(1, 2)
    )
    monkeypatch.setitem(EXPERIMENTS, "small", experiment)
    return experiment


def _row(cell: Cell, hits: int, again: int, by_session: dict[str, list[int]] | None = None) -> dict[str, Any]:
    row = {"key": cell.key(), "baseline": cell.policy != "adaptive", "block_hits": hits, "recomputed_tokens": again}
    more = {"cached_tokens": hits, "uncached_tokens": 1000 - hits, "moved_bytes": 0, "hit_ratio": hits / 1000}
    return {**row, **more, "cost": 1000 - 0.9 * hits, "by_session": by_session or {}, "trace_sha256": "abc"}


def test_gap_and_pairs(small: Experiment) -> None:
    rows = []
    for cell in small.cells():
        if cell.policy == "lru":
            rows.append(_row(cell, 200, 500, {"a": [10, 100, 1], "b": [10, 100, 1]}))
        elif cell.policy == "belady-resident":
            rows.append(_row(cell, 600, 100))
        elif cell.policy == "adaptive":
            worse = cell.seed == 2
            sessions = {"a": [10, 90 if worse else 150, 1], "b": [10, 90 if worse else 150, 1]}
            rows.append(_row(cell, 180 if worse else 300, 520 if worse else 400, sessions))
    found = figures("small", rows)
    line = next(line for line in found.lines if line.policy == "adaptive")
    first, second = line.points[0].pairs
    assert (first.gap, second.gap) == (0.25, -0.05)
    assert line.gap == pytest.approx(0.1) and line.points[0].gap == pytest.approx(0.1)
    assert first.within == (0.25, 0.25) and not first.below
    assert second.within == (-0.05, -0.05) and second.below
    assert (first.recomputed, second.recomputed) == (pytest.approx(-0.2), pytest.approx(0.04))
    assert line.gap_interval is not None and line.gap_interval[0] == pytest.approx(-0.05)
    assert not any(line.policy == "fifo" for line in found.lines)  # not measured
    page = as_markdown({"small": found})
    assert "| adaptive | 30 % |" in page and "1 of 2" in page and "kvp bench run small" in page


def test_the_bootstrap_covers_the_mean_and_is_the_same_twice() -> None:
    values = [0.1, 0.2, 0.3, 0.4, 0.5]
    interval = bootstrap(values)
    assert interval is not None and 0.1 <= interval[0] < 0.3 < interval[1] <= 0.5
    assert bootstrap(values) == interval and bootstrap([1.0]) is None


def test_a_bench_goes_on_where_it_stopped(small: Experiment, tmp_path: Path) -> None:
    file, shown = tmp_path / "rows.jsonl", list[int]()
    cells = small.cells()
    run(cells[:3], file, 2, lambda done, whole, row: shown.append(done))
    file.write_bytes(file.read_bytes() + b'{"key": "cut')
    kept = {row["key"] for row in rows_of(file)}
    assert len(kept) == 3
    rows = run(cells, file, 2, lambda done, whole, row: shown.append(done))
    assert [row["key"] for row in rows] == [cell.key() for cell in cells]
    assert shown == list(range(1, len(cells) + 1))  # nothing was measured twice
    assert run(cells, file, 2, lambda *_: pytest.fail("measured again")) == rows
    assert len(rows_of(file)) == len(cells)


def test_a_sweep_of_the_modelled_engine_goes_on_where_it_stopped(tmp_path: Path) -> None:
    file = tmp_path / "rows"
    points = [closed_loop.Point("continuum-swe", 1, load, 1, "lru", "fcfs") for load in (0.1, 0.2, 0.3)]
    closed_loop.run_all(points[:1], file, 1)
    file.write_bytes(file.read_bytes() + b'{"key": "cut')
    closed_loop.run_all(points, file, 1)
    readable = [line for line in file.read_bytes().splitlines() if line.endswith(b"}")]
    assert [json.loads(line)["key"] for line in readable] == [point.key for point in points]


def test_the_command_measures_and_reports(
    small: Experiment, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, html, made = (str(tmp_path / name) for name in ("r.jsonl", "p.html", "f.json"))
    assert main(["bench", "run", "small", "--rows", rows, "--jobs", "2"]) == 0
    assert "fifo at 60 %" in capsys.readouterr().err
    assert main(["bench", "report", "small", "--rows", rows, "--html", html, "--json", made]) == 0
    page = Path(html).read_text(encoding="utf-8")
    assert "<svg" in page and "kvp bench run small" in page and "http" not in page.replace("http-", "")
    document = json.loads(Path(made).read_text(encoding="utf-8"))
    assert {line["policy"] for line in document["experiments"][0]["lines"]} == set(small.policies)
    assert document["versions"]["kvpolicy"]
    assert main(["bench", "report", "roomy", "--rows", rows]) == 2
    assert main(["bench", "run", "nothing"]) == 2
    assert "held-out" in capsys.readouterr().err


@pytest.mark.parametrize("hints", HINTS)
def test_wrong_hints_change_what_is_told_and_nothing_that_happens(small: Experiment, hints: str) -> None:
    cell = Cell(small.trace, 1, "adaptive", 40.0, hints=hints)
    row, true = measure(cell), measure(replace(cell, hints="true"))
    assert row["block_refs"] == true["block_refs"] and row["prompt_tokens"] == true["prompt_tokens"]
    assert row["planning_failures"] == 0 and row == {
        **measure(cell),
        "seconds": row["seconds"],
        "wall_s": row["wall_s"],
    }
    assert hints == "true" or row["block_hits"] != true["block_hits"]


def test_a_contender_that_an_experiment_lacks_is_told(
    small: Experiment, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policies = ("--policy", "lru", "--policy", "chat_rag")
    assert main(["bench", "run", "small", "--rows", str(tmp_path / "r"), *policies]) == 2
    assert "--policy chat_rag: no contender of small; there are lru, belady-resident, fifo" in capsys.readouterr().err


def test_the_two_ends_of_the_gap_alone_are_no_policies(small: Experiment) -> None:
    rows = [_row(cell, 200, 500) for cell in small.cells() if cell.policy in ("lru", "belady-resident")]
    assert "no policy is to be told of" in as_markdown({"small": figures("small", rows)})


def test_adversarial_answers_are_the_reverse() -> None:
    one = call([1, 2], session="a", stop="tool_use")
    assert told(one, "adversarial").answer.stop == "end_turn"
    assert told(told(one, "adversarial"), "adversarial").answer.stop == "tool_use"
    assert told(one, "missing").answer.stop is None and told(one, "x10") is one


def test_a_server_may_begin_with_what_other_sessions_taught(small: Experiment) -> None:
    cold = Cell(small.trace, 1, "adaptive", 40.0)
    warm = measure(replace(cold, prior="0/1"))
    assert warm["block_hits"] != measure(cold)["block_hits"]


def test_experiments_are_judged_on_sessions_that_chose_nothing() -> None:
    for name, experiment in bench_experiments.EXPERIMENTS.items():
        if experiment.trace == "claude-code-sessions":
            assert experiment.part == "!0/4", name
            assert experiment.prior in (None, "0/4")


def test_pages(small: Experiment, tmp_path: Path) -> None:
    rows = run(small.cells(), tmp_path / "r.jsonl", 2, lambda *_: None)
    found = {"small": figures("small", rows)}
    assert as_html(found).count("<tr>") == as_markdown(found).count("\n| ") == 1 + 2 * len(small.policies)
    assert json.loads(as_json(found))["kvpolicy_bench"] == 1
