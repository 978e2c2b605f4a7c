"""Cases of the language that other systems got wrong: range ends, literals of time, and rules that disagree."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pytest

from kvpolicy.directive import Ttl
from kvpolicy.language.load import load_text
from kvpolicy.policy.compile import compile
from kvpolicy.policy.model import State, Subject
from kvpolicy.policy.snapshot import Snapshot
from kvpolicy.request import Owner
from tests.language.language_texts import faults_of, faults_of_files


def value_of(text: str, name: str, **attributes: object) -> object:
    """What a policy sets a property of a tools span to, in an idle state."""
    loaded = load_text(text, "file_1.kvp")
    assert loaded.files is not None
    state: State = Snapshot()
    found = compile(loaded.files).resolve(Subject("tools", attributes, Owner()), state)
    return found[name].value if name in found else None


@pytest.mark.parametrize("literal", [0, 1, 35, 99, 100])
def test_priorities_within_the_range_stand_as_written(literal: int) -> None:
    text = f"tools {{ priority: {literal} }}\n"
    assert not [fault for fault in faults_of(text) if fault.severity == "error"]
    assert value_of(text, "priority") == literal


@pytest.mark.parametrize(
    ("literal", "name", "column"),
    [
        ("-1", "out-of-range", 19),
        ("101", "out-of-range", 19),
        ("50.5", "out-of-range", 19),
        ("high", "unknown-name", 19),
    ],
)
def test_priorities_outside_are_refused(literal: str, name: str, column: int) -> None:
    (fault,) = faults_of(f"tools {{ priority: {literal} }}\n")
    assert (fault.name, fault.severity, fault.place.line, fault.place.column) == (name, "error", 1, column)
    assert fault.fix


@pytest.mark.parametrize(
    ("literal", "seconds"),
    [("5m", 300.0), ("5min", 300.0), ("1h", 3600.0), ("90s", 90.0), ("250ms", 0.25), ("1.5h", 5400.0), ("0s", 0.0)],
)
def test_lifetimes_are_read_exactly(literal: str, seconds: float) -> None:
    text = f"tools {{ priority: 80  ttl: {literal} }}\n"
    assert faults_of(text) == ()
    assert value_of(text, "ttl") == Ttl(seconds)


@pytest.mark.parametrize(
    ("literal", "name"),
    [("300", "unit-missing"), ("-5s", "out-of-range"), ("5 minuts", "unit-mismatch"), ("5minuts", "unit-mismatch")],
)
def test_lifetimes_that_are_refused(literal: str, name: str) -> None:
    (fault,) = faults_of(f"tools {{ priority: 80  ttl: {literal} }}\n")
    assert (fault.name, fault.severity) == (name, "error")
    assert fault.fix


def test_a_lifetime_of_ages_is_capped_and_told() -> None:
    text = "tools { priority: 80  ttl: 99999999999d }\n"
    (fault,) = faults_of(text)
    assert (fault.name, fault.severity) == ("duration-capped", "notice")
    assert value_of(text, "ttl") == Ttl(30 * 86400.0)


def test_without_a_lifetime_there_is_none() -> None:
    assert value_of("tools { priority: 80 }\n", "ttl") is None


R1 = "r1: tools { priority: 80 }"
R2 = "r2: tools { priority: 20 }"
R3 = "r3: tools[agent = coder] { priority: 60 }"
R4 = "r4: any { priority: 50 }"
R5 = "r5: document { priority: 70 }"


def test_rules_that_disagree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file_1.kvp").write_text("\n\n\n\n".join((R1, R2, R3, R4, R5)) + "\n")
    Path("file_2.kvp").write_text("r3: scratchpad { priority: 40 }\n")
    (twice,) = faults_of_files(["file_1.kvp", "file_2.kvp"])
    assert (twice.name, str(twice.place)) == ("name-defined-twice", "file_2.kvp:1:1")
    assert [str(note.place) for note in twice.notes] == ["file_1.kvp:9:1"]

    (clash,) = faults_of_files(["file_1.kvp"])
    assert clash.code == "KVP201"
    assert {str(clash.place), *(str(note.place) for note in clash.notes)} == {"file_1.kvp:1:1", "file_1.kvp:5:1"}
    assert clash.witness == {"kind": "tools"}
    assert "r1" in clash.message
    assert "r2" in clash.message


def test_the_narrower_rule_decides_in_every_order_of_the_rules() -> None:
    # No rule is final here: a catch-all is the widest, so whatever is narrower applies wherever it is written.
    for rules in permutations((R1, R3, R4, R5)):
        text = "\n".join(rules) + "\n"
        assert faults_of(text) == ()
        assert value_of(text, "priority", agent="coder") == 60
        assert value_of(text, "priority", agent="other") == 80
