"""The environments of `make test-frameworks`: one for every checkout, each with its own code; nothing is downloaded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import setuptools

from tests.frameworks import beside, environments
from tests.frameworks.environments import ENVIRONMENTS, Environment, build

PROJECT = """\
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "kvpolicy"
version = "1"
dependencies = ["{needs}"]
[project.optional-dependencies]
serve = []
[project.entry-points."kvpolicy.workflows"]
{known} = "kvpolicy:known"
"""
ASKED = (
    "import importlib.metadata as m, kvpolicy, shared; "
    "print(kvpolicy.SAID, *(e.name for e in m.entry_points(group='kvpolicy.workflows')))"
)


def checkout(folder: Path, said: str, needs: str = "lark", known: str = "some") -> Path:
    (folder / "kvpolicy").mkdir(parents=True, exist_ok=True)
    (folder / "pyproject.toml").write_text(PROJECT.format(needs=needs, known=known), encoding="utf-8")
    (folder / "setup.py").write_text("from setuptools import setup\nsetup(packages=['kvpolicy'])\n", encoding="utf-8")
    (folder / "kvpolicy" / "__init__.py").write_text(f"SAID = {said!r}\n", encoding="utf-8")
    return folder


@pytest.fixture
def one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Environment:
    """An environment that is there already: a module of its own, with the pip and setuptools of these tests."""
    monkeypatch.setattr(environments, "HOME", tmp_path / "home")
    monkeypatch.setattr(environments, "CHECKOUT", checkout(tmp_path / "first", "first"))
    made = Environment("made", ())
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(made.folder)], check=True)
    site, ours = beside._site(made.folder), Path(setuptools.__file__).parents[1]
    (site / "shared.py").touch()
    for name in ("pip", "pip-*", "setuptools*", "pkg_resources", "_distutils_hack"):
        for each in ours.glob(name):
            (site / each.name).symlink_to(each)
    (made.folder / "ready").write_text(made.recipe, encoding="utf-8")
    return made


def said_in(python: Path) -> list[str]:
    """What the code says that this interpreter finds, and its entry points."""
    done = subprocess.run([str(python), "-c", ASKED], cwd=python.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_two_checkouts_use_one_environment_at_once(
    one: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert build(one) and said_in(one.python) == ["first", "some"]
    first, made = one.python, (one.folder / "ready").stat().st_mtime_ns
    monkeypatch.setattr(environments, "CHECKOUT", checkout(tmp_path / "second", "second"))
    assert build(one) and said_in(one.python) == ["second", "some"]
    assert (one.folder / "ready").stat().st_mtime_ns == made  # nothing was built anew
    assert said_in(first) == ["first", "some"]


def test_what_a_checkout_declares_is_noticed(one: Environment, tmp_path: Path) -> None:
    assert build(one)
    checkout(tmp_path / "first", "changed", known="other")
    assert said_in(one.python) == ["changed", "some"]  # the code as it is, entry points as declared
    assert build(one) and said_in(one.python) == ["changed", "other"]
    checkout(tmp_path / "first", "changed", needs="another")
    assert not one.ready


def test_a_recipe_knows_no_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = {name: each.recipe for name, each in ENVIRONMENTS.items()}
    assert len(set(told.values())) == len(told)
    (tmp_path / "pyproject.toml").write_bytes((environments.CHECKOUT / "pyproject.toml").read_bytes())
    monkeypatch.setattr(environments, "CHECKOUT", tmp_path)
    assert {name: each.recipe for name, each in ENVIRONMENTS.items()} == told


def test_one_that_cannot_be_built_is_not_ready(one: Environment, capsys: pytest.CaptureFixture[str]) -> None:
    (environments.CHECKOUT / "setup.py").write_text("raise SystemExit('no')\n", encoding="utf-8")
    assert not build(one)
    assert "made could not be built: see " in capsys.readouterr().err
    assert not build(one)  # what is half made does not count
