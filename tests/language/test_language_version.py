"""`language 1`: read, kept out of the way of names, and refused with a mend where the version is another."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvpolicy import words
from kvpolicy.language.parse import parse
from tests.language.language_texts import faults_of, faults_of_files

RULE = "turn { priority: 40 }\n"


@pytest.mark.parametrize("head", ["", "language 1\n", "# first\n\n  language 1 # so\n", "language 1 "])
def test_a_file_says_its_version_or_is_of_the_first(head: str) -> None:
    file = parse(head + RULE, "a.kvp").file
    assert file is not None
    assert (file.language, len(file.rules)) == (1, 1)
    assert faults_of(head + RULE) == ()


@pytest.mark.parametrize(
    ("said", "mend"),
    [
        ("2", "later kvpolicy"),
        ("99", "later kvpolicy"),
        ("0", "whole number"),
        ("1.0", "whole number"),
        ("one", "whole number"),
        ("1s", "whole number"),
        ('"1"', "whole number"),
        ("9" * 5000, "whole number"),
    ],
)
def test_another_version_is_the_only_fault_of_its_file(said: str, mend: str) -> None:
    (fault,) = faults_of(f"# head\nlanguage {said}\nturn [ broken }} by: new words\n")
    assert (fault.code, fault.place.line, fault.place.column) == ("KVP111", 2, 10)
    assert said[:20] in fault.message
    assert len(fault.message) < 120
    assert mend in (fault.fix or "")
    assert f"language {words.LANGUAGES[-1]}" in (fault.fix or "")


@pytest.mark.parametrize(
    ("text", "name", "line"),
    [
        (RULE + "language 1\n", "syntax", 2),
        (RULE + "language 7\n", "syntax", 2),
        (RULE + "language 1.5s\n", "syntax", 2),
        (RULE + "language " + "9" * 5000, "syntax", 2),
        ("turn { priority: 40 } language 1\n", "syntax", 1),
        ("language 1\nlanguage 1\n" + RULE, "name-defined-twice", 2),
    ],
)
def test_it_stands_first_and_once(text: str, name: str, line: int) -> None:
    (fault,) = faults_of(text)
    assert (fault.name, fault.place.line) == (name, line)
    assert fault.fix


@pytest.mark.parametrize(
    "text",
    [
        "language: turn { priority: 40 }\n",
        "layer language { turn[agent = language] { priority: 40 } }\n",
        "let language = 5s\nturn { priority: 60  ttl: language }\n",
        "policy language\n" + RULE,
        "workflow w { agent language, b  language -> b }\n" + RULE,
    ],
)
def test_elsewhere_it_is_a_name(text: str) -> None:
    assert faults_of(text) == ()


def test_each_file_of_a_set_is_read_in_its_own_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("new.kvp").write_text("language 2\n" + RULE)
    Path("a.kvp").write_text('language 1\nuse "new.kvp"\ntools { priority: 80 }\n')
    (fault,) = faults_of_files(["a.kvp"])
    assert (fault.code, fault.place.file, fault.place.line) == ("KVP111", "new.kvp", 1)


def test_the_page_of_changes_has_every_version() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "language-changes.md").read_text(encoding="utf-8")
    assert [f"### Language {version}" in page for version in words.LANGUAGES] == [True] * len(words.LANGUAGES)
