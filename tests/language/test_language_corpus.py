"""The corpus: for each code a file that has it, its golden output, and a mended twin; and the pages about codes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kvpolicy.language.codes import CODES
from tests.language.language_texts import CORPUS, PAGES, faults_of, faults_of_files

BAD = sorted((CORPUS / "bad").glob("KVP*.kvp"))
GOOD = sorted((CORPUS / "good").glob("*.kvp"))


@pytest.mark.parametrize("file", BAD, ids=lambda file: file.stem)
def test_a_bad_file_gives_its_code_and_nothing_else(file: Path, monkeypatch: pytest.MonkeyPatch, update: bool) -> None:
    monkeypatch.chdir(file.parent)
    found = faults_of_files([file.name])
    assert {fault.code for fault in found} == {file.name[:6]}
    text = json.dumps([fault.as_json() for fault in found], indent=1, ensure_ascii=False) + "\n"
    golden = file.with_suffix(".json")
    if update:
        golden.write_text(text, encoding="utf-8")
    assert golden.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("file", GOOD, ids=lambda file: file.stem)
def test_a_good_file_gives_nothing(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    assert faults_of_files([file.name]) == ()


def test_every_code_has_a_bad_file_a_twin_and_a_page() -> None:
    stems = {f"{code}_{row.name.replace('-', '_')}" for code, row in CODES.items()}
    assert {file.stem for file in BAD} == stems
    assert stems <= {file.stem for file in GOOD}
    assert {page.stem for page in PAGES.glob("KVP[12]*.md")} == set(CODES)


@pytest.mark.parametrize("code", CODES)
def test_the_examples_of_a_page_do_what_it_says(code: str) -> None:
    page = (PAGES / f"{code}.md").read_text(encoding="utf-8")
    row = CODES[code]
    assert page.startswith(f"# {code} {row.name}\n\n{row.line}. ")
    failing, mended = re.findall(r"```kvp\n(.*?)```", page, re.S)
    name = f"{code}_{row.name.replace('-', '_')}.kvp"
    assert {fault.code for fault in faults_of(failing, name, CORPUS / "bad")} == {code}
    assert faults_of(mended, name, CORPUS / "good") == ()
