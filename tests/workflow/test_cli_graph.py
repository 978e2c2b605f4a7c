"""`kvp graph`: keys, exit status, and what is said of files that hold no workflow."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvpolicy.cli.main import main

RESEARCH = """workflow research {
  agent planner, searcher, writer
  barrier judge
  planner -> searcher * n -> judge -> writer
  loop judge -> searcher at most 3
}
"""


def graph(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict]:
    status = main(["graph", *words, "--format", "json"])
    return status, json.loads(capsys.readouterr().out)


def test_the_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "research.kvp"
    file.write_text(RESEARCH)
    status, document = graph(capsys, str(file))
    assert status == 0
    assert {row["name"]: row["steps_to_next_use"] for row in document["nodes"]} == {
        "planner": 0,
        "searcher": 1,
        "writer": 3,
        "judge": 2,
    }
    assert document["edges"] == [
        ["planner", "searcher"],
        ["searcher", "judge"],
        ["judge", "writer"],
        ["judge", "searcher"],
    ]
    assert document["loops"] == [["searcher", "judge"]]
    assert document["diagnostics"] == []


def test_a_state_says_where_the_run_stands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, state = tmp_path / "research.kvp", tmp_path / "state.json"
    file.write_text(RESEARCH)
    rows = [("step_start", "planner", 0), ("step_end", "planner", 5), ("step_start", "searcher", 5)]
    rows += [("step_start", "searcher", 5), ("step_end", "searcher", 9)]
    events = [{"at": at, "event": name, "node": node, "session": "s"} for name, node, at in rows]
    state.write_text(json.dumps({"events": events}))
    status, document = graph(capsys, str(file), "--state", str(state))
    steps = {row["name"]: row["steps_to_next_use"] for row in document["nodes"]}
    assert (status, steps) == (0, {"planner": "never", "searcher": 0, "writer": 2, "judge": 1})


def test_ranks_follow_the_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, state = tmp_path / "research.kvp", tmp_path / "state.json"
    near = "system when steps_to_next_use() else 9 <= 1 { priority: 80 }\n"
    far = "system when steps_to_next_use() else 9 > 1 { priority: 20 }\n"
    file.write_text(RESEARCH + near + far)
    status, document = graph(capsys, str(file))
    assert {row["name"]: row["rank"] for row in document["nodes"]} == {
        "planner": 80,
        "searcher": 80,
        "writer": 20,
        "judge": 20,
    }
    events = [{"at": 1, "event": "step_start", "node": "judge", "run": "r"}]
    state.write_text(json.dumps({"events": events}))
    status, document = graph(capsys, str(file), "--state", str(state))
    assert status == 0
    assert {row["name"]: row["rank"] for row in document["nodes"]} == {
        "planner": 20,
        "searcher": 80,  # by the loop
        "writer": 80,
        "judge": 80,
    }


def test_workflows_in_a_workflow_and_what_is_stated_of_edges(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "report.kvp"
    file.write_text(
        "workflow report {\n  agent plan, write, check of write\n  workflow search\n  plan -> search 70% -> write\n"
        "  plan -> write 30%\n  loop write -> plan * n 12.5% at most 2\n}\nworkflow search { agent find }\n"
    )
    assert main(["graph", str(file)]) == 0  # the outer one, as the other stands in it
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "workflow report"
    assert "  write            1    35      1  agent  after search/find, plan (30%)" in lines
    assert "  check            2    35      1  agent  called by write" in lines
    assert "  search/find      1    35  0.727  agent  after plan (70%)" in lines
    _, document = graph(capsys, str(file))
    assert document["stated"] == [
        {"from": "write", "to": "check", "calls": True},
        {"from": "plan", "to": "search/find", "probability": 0.7},
        {"from": "plan", "to": "write", "probability": 0.3},
        {"from": "write", "to": "plan", "times": "n", "at_most": 2, "probability": 0.125, "loop": True},
    ]
    assert main(["graph", str(file), "--workflow", "search"]) == 0
    assert capsys.readouterr().out.startswith("workflow search\n")
    file.write_text("workflow report { workflow serch }\nworkflow search { agent find }\n")
    assert main(["graph", str(file)]) == 1
    assert "did you mean `search`?" in capsys.readouterr().err


def test_a_loop_without_an_exit_is_a_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "loop.json"
    file.write_text(json.dumps({"nodes": ["a", "b"], "edges": [["a", "b"], ["b", "a"]]}))
    status, document = graph(capsys, str(file))
    assert status == 1
    assert [d["name"] for d in document["diagnostics"]] == ["loop-without-exit"]
    assert main(["graph", str(file)]) == 1
    assert "a -> b -> a" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["system { priority: 90 }\n", RESEARCH + RESEARCH.replace("research", "other")])
def test_no_workflow_or_several(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "p.kvp"
    file.write_text(text)
    assert main(["graph", str(file), "--format", "json"]) == 2
    answer = capsys.readouterr()
    assert answer.out == ""
    assert "workflow" in answer.err


def test_text_shows_joins_and_names_what_is_unreachable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "w.json"
    edges = [["a", "j"], ["b", "j"]]
    file.write_text(json.dumps({"nodes": ["a", "b", "j", "lost"], "edges": edges, "joins": {"j": "and"}}))
    assert main(["graph", str(file)]) == 0
    shown = capsys.readouterr().out
    assert "after all of a, b" in shown
    assert "'lost'" in shown
    assert "never" in shown


def test_the_text_has_a_head_the_bounds_of_loops_and_no_rank_for_a_tool(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "research.kvp"
    tool = "tool web\n  searcher -> web -> searcher\n  loop"
    file.write_text(RESEARCH.replace("loop", tool) + "system { priority: 60 }\n")
    assert main(["graph", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "  node      steps  rank  reuse"
    assert "  web           2     -      -  tool  after searcher" in lines
    assert "  searcher      1    60      1  agent  after planner, web, judge" in lines
    assert lines[-2:] == [
        "  loop: searcher -> judge -> searcher, at most 3 times",
        "  loop: searcher -> web -> searcher",
    ]
    _, document = graph(capsys, str(file))
    assert {row["name"]: row["rank"] for row in document["nodes"]}["web"] is None


def test_an_event_of_a_node_that_is_not_there_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, state = tmp_path / "w.kvp", tmp_path / "state.json"
    file.write_text("workflow w {\n  agent writer, editor\n  writer -> editor\n}\n")
    rows = [
        {"at": 0.0, "event": "step_start", "node": "writer", "session": "s"},
        {"at": 1.0, "event": "step_end", "node": "writter", "session": "s"},
        {"at": 2.0, "event": "step_end", "node": "writter", "session": "s"},
        {"at": 3.0, "event": "step_end", "node": "zzz", "session": "s"},
        {"at": 4.0, "event": "step_end", "node": "other", "workflow": "another", "session": "t"},
    ]
    state.write_text(json.dumps({"events": rows}))
    assert main(["graph", str(file), "--state", str(state)]) == 0
    assert capsys.readouterr().err.splitlines() == [
        f"kvp: notice: {state}: events[1]: the workflow w has no node writter, so this moves nothing; "
        "did you mean writer?",
        f"kvp: notice: {state}: events[3]: the workflow w has no node zzz, so this moves nothing; "
        "its nodes are writer, editor",
    ]


UNREACHED = "workflow w {\n  agent a, b, lost\n  a -> b\n}\nsystem { priority: 40 }\n"


@pytest.mark.parametrize("command", ["graph", "check"])
def test_a_node_that_nothing_leads_to_is_told_once_at_its_place(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "w.kvp"
    file.write_text(UNREACHED)
    assert main([command, str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    (told,) = [line for line in lines if "UNREACHABLE_NODE:" in line]
    assert told.startswith(f"{file}:2:15: notice UNREACHABLE_NODE: no way through workflow w leads to 'lost'")
    assert "  2 |   agent a, b, lost" in lines
    page = next(line for line in lines if line.startswith("more about it: ")).removeprefix("more about it: ")
    assert (Path(__file__).resolve().parents[2] / page).is_file()
    main([command, str(file), "--format", "json"])
    document = json.loads(capsys.readouterr().out)
    (row,) = document["diagnostics"] if command == "graph" else document["files"][0]["diagnostics"]
    assert (row["code"], row["name"], row["line"], row["column"]) == ("UNREACHABLE_NODE", "UNREACHABLE_NODE", 2, 15)


def test_the_page_of_shares_that_are_scaled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its graph has this notice and no other fault."""
    page = Path(__file__).resolve().parents[2] / "docs" / "codes" / "SHARES_SCALED.md"
    file = tmp_path / "w.json"
    file.write_text(page.read_text(encoding="utf-8").partition("```json\n")[2].partition("```")[0])
    status, document = graph(capsys, str(file))
    assert status == 0
    assert [row["name"] for row in document["diagnostics"]] == ["SHARES_SCALED"]


def test_how_likely_each_node_is_to_run_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The very value that a rule's `reuse_probability()` has there, in text and JSON."""
    flow = "workflow w {\n  agent a, b, c\n  tool t\n  a -> b 30% -> t\n  a -> c\n}\n"
    file, state = tmp_path / "w.kvp", tmp_path / "state.json"
    file.write_text(flow + "seldom: system when reuse_probability() else 1 < 0.5 { priority: 7 }\n")
    state.write_text(json.dumps({"events": [{"at": 0, "event": "step_start", "node": "a", "session": "s"}]}))
    _, document = graph(capsys, str(file), "--state", str(state))
    chances = {row["name"]: row["reuse_probability"] for row in document["nodes"]}
    assert chances == {"a": 1.0, "b": pytest.approx(0.3), "c": pytest.approx(0.7), "t": None}
    assert {row["name"]: row["rank"] for row in document["nodes"]} == {"a": 35, "b": 7, "c": 35, "t": None}
    assert main(["graph", str(file), "--state", str(state)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[3:5] == [
        "  b         1     7    0.3  agent  after a (30%)",
        "  c         1    35    0.7  agent  after a",
    ]


def test_chances_that_cost_too_much_are_not_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where everything leads to everything, and nothing is certain."""
    for count, known in ((10, 11), (150, 0)):
        names = [f"n{number}" for number in range(count)]
        edges = [[one, other] for one in names for other in names if one != other]
        ends = [{"from": name, "to": "end", "probability": 0.001} for name in names]
        file = tmp_path / f"{count}.json"
        file.write_text(json.dumps({"nodes": ["begin", *names, "end"], "edges": [["begin", "n0"], *edges, *ends]}))
        main(["graph", str(file), "--format", "json"])
        rows = json.loads(capsys.readouterr().out)["nodes"]
        assert sum(row["reuse_probability"] is not None for row in rows) == known


def test_a_mend_is_written_in_the_form_of_the_graph(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is added as told is what was asked for; a block's words are a block's alone."""
    document = {"nodes": ["a", "c", 'd "e"'], "edges": [["a", "b"], ["a", "c"], ["c", "a"]], "joins": {"z": "and"}}
    file = tmp_path / "g.json"
    file.write_text(json.dumps(document))
    status, told = graph(capsys, str(file))
    mends = [row["fix"] for row in told["diagnostics"]]
    assert status == 1
    assert mends == [
        'declare it: "b" among the nodes',
        'declare it: "z" among the nodes',
        'add an edge out of it, or a bound: {"from": "c", "to": "a", "at_most": 3}',
        'write a way to it, such as ["NODE", "d \\"e\\""] among the edges, or remove it',
    ]
    bounded = json.loads(mends[2].partition(": ")[2])
    mended = {"nodes": ["a", "c", "b", "z"], "edges": [["a", "b"], ["a", "c"], bounded, ["c", "z"]]}
    file.write_text(json.dumps(mended))
    status, told = graph(capsys, str(file))
    assert (status, told["diagnostics"]) == (0, [])
    block = tmp_path / "g.kvp"
    block.write_text("workflow g {\n  agent a, c, d\n  a -> c\n  c -> a\n}\n")
    assert [row["fix"] for row in graph(capsys, str(block))[1]["diagnostics"]] == [
        "add an edge out of it, or a bound: loop c -> a at most 3",
        "write a way to it, such as NODE -> d, or remove it",
    ]
