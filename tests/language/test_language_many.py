"""Policies of very many rules: twenty thousand are checked, more are refused at once, with the place and the mend."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvpolicy.language.load import load, load_text
from kvpolicy.language.parse import LARGEST_TEXT, MOST_RULES, parse
from kvpolicy.policy.checked import examined


def test_a_text_of_mebibytes_is_refused_before_it_is_parsed() -> None:
    line = "turn { priority: 90 }\n"
    result = parse(line * (LARGEST_TEXT // len(line)), "p.kvp")
    assert result.file is None
    assert [(d.code, d.place.line) for d in result.diagnostics] == [("KVP109", MOST_RULES + 1)]
    assert result.diagnostics[0].fix


def test_braces_in_comments_and_texts_are_no_rules() -> None:
    noise = "# {{{{\n" * (MOST_RULES // 2) + f'policy p "{"{" * MOST_RULES}"\n'
    assert not parse(noise + "turn { priority: 90 }\n", "p.kvp").diagnostics


def test_the_rules_of_all_files_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvpolicy.language.load.MOST_RULES", 5)
    (tmp_path / "a.kvp").write_text("turn[agent = a] { priority: 1 }\n" * 3)
    (tmp_path / "b.kvp").write_text('use "a.kvp"\n' + "turn[agent = b] { priority: 1 }\n" * 2)
    assert load([tmp_path / "b.kvp"]).files is not None
    (tmp_path / "c.kvp").write_text('use "b.kvp"\n' + "turn[agent = c] { priority: 1 }\n")
    loaded = load([tmp_path / "c.kvp"])
    assert loaded.files is None
    assert [(d.code, d.place.line) for d in loaded.diagnostics] == [("KVP109", 2)]
    assert [d.code for d in examined(loaded).diagnostics] == ["KVP109"]


def test_twenty_thousand_rules_are_a_policy() -> None:
    text = "".join(f"turn[agent = a{i}] {{ priority: 90 }}\n" for i in range(MOST_RULES))
    loaded = load_text(text)
    assert loaded.files is not None and not loaded.diagnostics
