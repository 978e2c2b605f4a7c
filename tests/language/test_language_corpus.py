"""The corpus: for each code a file that has it, its golden output, and a mended twin; and the pages about codes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import kvpolicy
from kvpolicy.capabilities_json import read_capabilities
from kvpolicy.engine_check import check_engine, find_engine
from kvpolicy.faults import Diagnostic
from kvpolicy.language.codes import CODES
from kvpolicy.policy.checked import open_policy
from tests.language.language_texts import CORPUS, PAGES, faults_of, faults_of_files

BAD = sorted((CORPUS / "bad").glob("KVP*.kvp"))
GOOD = sorted((CORPUS / "good").glob("*.kvp"))


def told(file: Path) -> tuple[Diagnostic, ...]:
    """What is told of a file, and of the engine that is described beside it."""
    found = faults_of_files([file.name])
    engine = file.with_suffix(".engine.json")
    return (*found, *check_engine(open_policy([file.name]), find_engine(str(engine)))) if engine.exists() else found


@pytest.mark.parametrize("file", BAD, ids=lambda file: file.stem)
def test_a_bad_file_gives_its_code_and_nothing_else(file: Path, monkeypatch: pytest.MonkeyPatch, update: bool) -> None:
    monkeypatch.chdir(file.parent)
    found = told(file)
    assert {fault.code for fault in found} == {file.name[:6]}
    text = json.dumps([fault.as_json() for fault in found], indent=1, ensure_ascii=False) + "\n"
    golden = file.with_suffix(".json")
    if update:
        golden.write_text(text, encoding="utf-8")
    assert golden.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("file", GOOD, ids=lambda file: file.stem)
def test_a_good_file_gives_nothing(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    assert told(file) == ()


def test_every_code_has_a_bad_file_a_twin_and_a_page() -> None:
    stems = {f"{code}_{row.name.replace('-', '_')}" for code, row in CODES.items()}
    assert {file.stem for file in BAD} == stems
    assert stems <= {file.stem for file in GOOD}
    assert {page.stem for page in PAGES.glob("KVP*.md")} == set(CODES)


@pytest.mark.parametrize("code", CODES)
def test_the_examples_of_a_page_do_what_it_says(code: str) -> None:
    page = (PAGES / f"{code}.md").read_text(encoding="utf-8")
    row = CODES[code]
    assert page.startswith(f"# {code} {row.name}\n\n{row.line}. ")
    failing, mended = re.findall(r"```kvp\n(.*?)```", page, re.S)
    name = f"{code}_{row.name.replace('-', '_')}.kvp"
    engines = [read_capabilities(json.loads(text)) for text in re.findall(r"```json\n(.*?)```", page, re.S)]
    if engines:
        assert {fault.code for fault in check_engine(kvpolicy.load(failing), engines[0])} == {code}
        assert check_engine(kvpolicy.load(mended), engines[-1]) == ()
    else:
        assert {fault.code for fault in faults_of(failing, name, CORPUS / "bad")} == {code}
    assert faults_of(mended, name, CORPUS / "good") == ()
