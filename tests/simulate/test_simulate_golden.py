"""Every number of the golden counts, made by an independent program on public traces, to 0.0005."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest

from kvpolicy.simulate.capacity import Capacity
from kvpolicy.simulate.names import contender
from kvpolicy.simulate.read import FileTrace
from kvpolicy.simulate.simulate import simulate
from tests.simulate.traces_for_tests import data_file

POLICIES = ("lru-object", "lru", "belady", "belady-resident")
FOLDERS = {
    "conversation_first30min.jsonl.gz": "mooncake",
    "synthetic_trace.jsonl.gz": "mooncake",
    "claude_code_100x4h_seed7.mooncake.jsonl.gz": "claude_code",
}


@pytest.mark.parametrize("file", FOLDERS)
def test_golden_counts(file: str) -> None:
    golden = json.loads(data_file("GOLDEN.json").read_text())[file]
    path = data_file(f"{FOLDERS[file]}/{file}")
    capacities = [Capacity(Fraction(row["capacity_blocks"])) for row in golden["at"]]
    outcome = simulate(FileTrace(path, file), [contender(name) for name in POLICIES], capacities)
    facts = outcome.facts
    assert [facts.block_refs, facts.unique_blocks, facts.requests] == [
        golden["block_refs"], golden["unique_blocks"], golden["requests"]
    ]  # fmt: skip
    assert facts.seen_blocks / facts.block_refs == pytest.approx(golden["infinite"], abs=0.0005)
    got = {(t.policy, t.capacity_blocks): t.hit_ratio for t in outcome.tallies}
    wanted = {(name, row["capacity_blocks"]): row[name] for row in golden["at"] for name in POLICIES}
    assert got == pytest.approx(wanted, abs=0.0005)


def test_the_golden_file_has_nothing_that_is_not_tested() -> None:
    golden = json.loads(data_file("GOLDEN.json").read_text())
    assert set(golden) == set(FOLDERS)
    assert {key for one in golden.values() for row in one["at"] for key in row} == {*POLICIES, "capacity_blocks"}
