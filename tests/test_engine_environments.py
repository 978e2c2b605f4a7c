"""The environments of `make test-engines`: when one is built, built anew, or left alone; nothing is downloaded here."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engines import environments, run
from tests.engines.environments import ENVIRONMENTS, CannotBuild, Environment, build


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(environments, "HOME", tmp_path)
    monkeypatch.setattr(environments, "TRIES", 1)
    return tmp_path


def made(environment: Environment, stamp: str) -> None:
    environment.folder.mkdir(parents=True)
    (environment.folder / "ready").write_text(stamp, encoding="utf-8")


def test_one_is_ready_when_this_recipe_made_it_to_the_end(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = ENVIRONMENTS["vllm-0.32.0"]
    assert first.folder == home / "vllm-0.32.0" and not first.ready
    made(first, first.recipe + "\n")
    assert first.ready
    (first.folder / "ready").write_text("of another recipe\n", encoding="utf-8")
    assert not first.ready
    second = ENVIRONMENTS["vllm-0.33.0"].recipe
    changed = Environment(first.name, first.engine, requirements=first.requirements)  # without the lock
    monkeypatch.setitem(ENVIRONMENTS, first.name, changed)
    assert changed.recipe != first.recipe
    assert ENVIRONMENTS["vllm-0.33.0"].recipe != second  # it reads the other's packages


def test_a_half_built_one_is_built_anew_and_a_fault_names_its_step(home: Path) -> None:
    one = Environment("broken", "./no-such-folder/engine")
    one.folder.mkdir()
    (one.folder / "half").touch()
    with pytest.raises(CannotBuild, match=r"(?s)broken: 'pip install --no-deps ./no-such-folder/engine' failed.*log"):
        build(one)
    assert not (one.folder / "half").exists() and not one.ready
    assert one.python.exists()


def test_what_does_not_exist_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert environments.main(["vllm-9"]) == 2
    assert "no environment vllm-9; there are vllm-0.32.0" in capsys.readouterr().err
    assert run.main(["nothing"]) == 2
    assert "no suite ['nothing']; there are core-0.32.0" in capsys.readouterr().err


def test_no_suite_that_ran_nothing_passes(capsys: pytest.CaptureFixture[str]) -> None:
    one, *rest = run.SUITES
    fine = run.Result(passed=3)
    for bad in (run.Result(), run.Result(passed=3, failed=1), run.Result(passed=3, fault="stopped")):
        assert run._report({one: bad}) == 1
        assert run._report({one: fine, rest[0]: bad}) == 1
    assert run._report({one: fine}) == 0
    said = capsys.readouterr().out
    assert "FAILED" in said and f"{rest[-1].title}: not asked for" in said and "on a GPU" in said


def test_a_report_is_read(tmp_path: Path) -> None:
    report = tmp_path / "r.xml"
    report.write_text(
        "<testsuites><testsuite><testcase name='a'/><testcase name='b'><failure/></testcase><testcase name='c'><error/>"
        "</testcase><testcase name='d'><skipped message='no GPU'/></testcase></testsuite></testsuites>",
        encoding="utf-8",
    )
    result = run._read(report)
    assert (result.passed, result.failed, result.skipped, result.fine) == (1, 2, ["d: no GPU"], False)
    assert run._read(tmp_path / "none.xml").fault == "no report was written"
