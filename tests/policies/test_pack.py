"""The packaged policies: each does on its scenario what neither the engine's own order nor `base` does, and it is the
rule named here that does it: without it the policy's own tests fail, and the scenario ends otherwise.

Everything runs through plan, claims and pool as in a service.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import pytest

from kvpolicy.cli.main import main
from tests.policies import scenarios
from tests.policies.deleting import expectations, without
from tests.policies.scenarios import SCENARIOS
from tests.policies.scene import text_of

# policy: (blocks found cached under it, under lru, under base)
FOUND: dict[str, tuple[list[int], list[int], list[int]]] = {
    "base": ([3, 5], [0, 1], [3, 5]),
    "coding_agent": ([7, 7], [0, 0], [0, 0]),
    "adaptive": ([7], [0], [0]),
    "continuum": ([7], [0], [0]),
    "continuum_released": ([7, 0], [0, 0], [0, 0]),
    "chat_rag": ([10], [0], [0]),
    "kvflow": ([60], [0], [0]),
    "tree_of_thought": ([8, 11], [0, 6], [0, 6]),
    "agents": ([8, 8, 8, 4, 3], [0, 0, 0, 0, 0], [0, 0, 0, 0, 3]),
}
DECISIVE = [
    ("base", "head"),
    ("base", "finished"),
    ("coding_agent", "paused"),
    ("adaptive", "kept"),
    ("continuum", "paused"),
    ("continuum_released", "paused"),
    ("chat_rag", "documents"),
    ("kvflow", "prefix"),
    ("tree_of_thought", "trunk"),
    ("tree_of_thought", "winner"),
    ("agents", "passed"),
]


def own_tests(name: str) -> str:
    return expectations(resources.files("kvpolicy.policies").joinpath(f"{name}.test.kvp").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", FOUND)
def test_a_policy_keeps_what_neither_lru_nor_base_keeps(name: str) -> None:
    play = SCENARIOS[name]
    own, lru, base = FOUND[name]
    assert (play(text_of(name)), play(None), play(text_of("base"))) == (own, lru, base)
    assert sum(own) > (sum(lru) if name == "base" else max(sum(lru), sum(base)))


@pytest.mark.parametrize(("name", "rule"), DECISIVE)
def test_without_its_decisive_rule_the_scenario_ends_otherwise(name: str, rule: str) -> None:
    found = SCENARIOS[name](without(text_of(name), rule))
    assert sum(found) < sum(FOUND[name][0])


@pytest.mark.parametrize(("name", "rule"), DECISIVE)
def test_without_its_decisive_rule_its_own_tests_fail(
    name: str, rule: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / f"{name}.kvp"
    file.write_text(text_of(name) + own_tests(name), encoding="utf-8")
    assert main(["test", str(file)]) == 0, capsys.readouterr()
    capsys.readouterr()
    file.write_text(without(text_of(name), rule) + own_tests(name), encoding="utf-8")
    assert main(["test", str(file)]) == 1
    assert ", 0 failed" not in capsys.readouterr().out


@pytest.mark.parametrize("name", FOUND)
def test_a_policy_passes_its_checks_and_its_tests_decide_every_rule(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", name]) == 0
    assert "0 errors, 0 warnings" in capsys.readouterr().out
    assert main(["test", name, "--coverage"]) == 0
    listed = [line for line in capsys.readouterr().out.splitlines() if "never: " in line]
    assert not [line for line in listed if name == "base" or "never: base." not in line]


def test_the_page_of_the_pack_shows_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    scenarios.main()
    page = Path(__file__).parents[2] / "docs" / "policies" / "README.md"
    assert capsys.readouterr().out in page.read_text(encoding="utf-8")
