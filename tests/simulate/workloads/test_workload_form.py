"""Made workloads as traces: the same seed gives the same calls, another one others; written and read back they are the
same; blocks are prefix-chained and shared where the text is; wrong settings are told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvpolicy.cli.main import main
from kvpolicy.simulate.interleaving import Interleaving
from kvpolicy.simulate.library import find
from kvpolicy.simulate.read import FileTrace
from kvpolicy.simulate.trace import Call, Facts
from kvpolicy.simulate.workloads.catalogue import WORKLOADS, workload
from kvpolicy.simulate.workloads.prompt import Blocks, Prompt

SMALL = {"sessions": 5, "workflows": 2, "rounds": 2, "tasks": 3, "searches": 2, "trunk": 2_000}


def small(name: str, seed: int = 1) -> list[Call]:
    numbers = {key: value for key, value in SMALL.items() if key in WORKLOADS[name].trace.settings}
    return list(workload(name, seed, dict(numbers)).calls(Facts()))


def shown(calls: list[Call]) -> list[object]:
    """Everything of the calls that decides anything."""
    return [
        (
            call.at,
            call.request.owner,
            call.request.tokens,
            [(span.kind, span.start, span.end, dict(span.attributes)) for span in call.request.spans],
            dict(call.request.attributes),
            list(call.hashes),
            (call.answer.stop, call.answer.tool_calls, call.answer.output_tokens),
            [dict(event) for event in call.before],
            call.seen,
            call.pause,
            call.waits_for,
        )
        for call in calls
    ]


@pytest.mark.parametrize("name", list(WORKLOADS))
def test_one_seed_one_trace(name: str) -> None:
    assert shown(small(name)) == shown(small(name))
    assert shown(small(name)) != shown(small(name, 2))


@pytest.mark.parametrize("name", list(WORKLOADS))
def test_written_and_read_back_it_is_the_same(name: str, tmp_path: Path) -> None:
    path = tmp_path / "made.jsonl.gz"
    options = [f"--set={key}={value}" for key, value in SMALL.items() if key in WORKLOADS[name].trace.settings]
    assert main(["trace", "make", name, "--seed", "1", "--out", str(path), *options]) == 0
    facts = Facts()
    read = list(FileTrace(path, "made").calls(facts))
    assert shown(read) == shown(small(name))
    assert facts.workflow == WORKLOADS[name].trace.workflow or name.startswith("kvflow")
    assert facts.label.startswith("MADE")
    assert not facts.notices


def test_it_streams(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "make", "one-shot", "--set", "sessions=3"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert rows[0]["kvpolicy_trace"] == 1
    assert len(rows) == 4
    calls = workload("continuum-swe", 1, {"sessions": 1_000.0}).calls(Facts())
    assert next(calls).at > 0  # the rest is not made yet


def test_a_workload_is_a_trace_like_any_other() -> None:
    trace, told = find("kvflow-peer", Interleaving(), 3)
    facts = Facts()
    next(iter(trace.calls(facts)))
    assert told is None and facts.workflow is not None and "seed 3" in facts.label


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nothing"], "no workload of that name"),
        (["one-shot", "--set", "seshuns=3"], "has no such setting; it has sessions, per_s"),
        (["one-shot", "--set", "sessions"], "it is KEY=NUMBER"),
        (["one-shot", "--set", "sessions=2.5"], "a whole one"),
        (["one-shot", "--set", "per_s=nan"], "a number above 0"),
        (["tree-set", "--set", "task=5"], "one of 1 (docmerge)"),
        (["one-shot", "--out", "/nowhere/at/all"], "No such file"),
    ],
)
def test_what_cannot_be_made_is_told(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "make", *words]) == 2
    assert said in capsys.readouterr().err


PIECES = st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.integers(1, 9)), max_size=6)


@settings(max_examples=200)
@given(PIECES, PIECES)
def test_blocks_are_shared_exactly_where_the_text_is(
    one: list[tuple[str | None, int]], two: list[tuple[str | None, int]]
) -> None:
    """Token by token: two blocks have one id only if all tokens up to their end are the same and somebody else's
    too."""
    blocks = Blocks(4)
    seen: list[tuple[list[object], list[int]]] = []
    for number, pieces in enumerate((one, two)):
        prompt, tokens = Prompt(blocks), list[object]()
        for index, (text, count) in enumerate(pieces):
            prompt.add("turn", count, text)
            tokens += [(text if text is not None else (number, index), i) for i in range(count)]
        assert prompt.tokens == len(tokens) and len(prompt.hashes) == len(tokens) // 4
        assert len(set(prompt.hashes)) == len(prompt.hashes)
        seen.append((tokens, prompt.hashes))
    (left, mine), (right, other) = seen
    for index in range(min(len(mine), len(other))):
        upto = 4 * (index + 1)
        assert (mine[index] == other[index]) == (left[:upto] == right[:upto])


def test_forks_share_what_stands_before_them() -> None:
    trunk = Prompt(Blocks(4)).add("document", 10)
    one, two = trunk.fork().add("branch", 6, branch="x"), trunk.fork().add("branch", 6, branch="y")
    assert one.hashes[:2] == two.hashes[:2] == trunk.hashes
    assert set(one.hashes[2:]).isdisjoint(two.hashes[2:])
    assert [span.kind for span in one.spans] == ["document", "branch"]
