"""What `KVPOLICY_FUZZ` makes of a property test: the examples that it draws are counted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tests

TESTS = """
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

drawn = {"cases": 0, "plain": 0, "method": 0, "machine": 0}

@pytest.mark.parametrize("case", [1, 2, 3])
@given(st.integers())
@settings(max_examples=7)
def test_cases(case, number):
    drawn["cases"] += 1

@given(st.integers())
def test_plain(number):
    drawn["plain"] += 1

class TestMethods:
    @given(st.integers())
    @settings(max_examples=5)
    def test_method(self, number):
        drawn["method"] += 1

class Life(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        drawn["machine"] += 1

    @rule(number=st.integers())
    def step(self, number):
        pass

Life.TestCase.settings = settings(max_examples=4, stateful_step_count=3)
TestLife = Life.TestCase

def test_written():
    print("drawn", *drawn.values())
"""


@pytest.mark.parametrize("times", [1, 3])
def test_each_draws_as_many_times_as_said(times: int, tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text((Path(__file__).parent / "conftest.py").read_text())
    (tmp_path / "test_properties.py").write_text(TESTS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "test_properties.py"],
        env={"PYTHONPATH": str(Path(tests.__path__[0]).parent), "KVPOLICY_FUZZ": str(times)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout
    (row,) = [row for row in done.stdout.splitlines() if "drawn" in row]
    cases, plain, method, machine = map(int, row.partition("drawn")[2].split())
    assert (cases, plain, method) == (3 * 7 * times, 100 * times, 5 * times)
    assert 4 * times <= machine <= 4 * times + 1  # a machine is begun once more to look at its rules
