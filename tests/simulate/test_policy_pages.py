"""What the pages of policies say they reach is what the evidence has."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kvpolicy.simulate.report_page import signed

DOCS = Path(__file__).parents[2] / "docs"
MIXED = (
    "agents",
    "adaptive",
    "continuum",
    "base",
    "tree_of_thought",
    "kvflow",
    "agents-without-continuum",
    "agents-without-kvflow",
    "agents-without-tree_of_thought",
)


@cache
def evidence() -> dict[tuple[str, str, str], dict[str, Any]]:
    """Lines by experiment, policy and hints."""
    (file,) = (DOCS / "evidence").glob("policies-*.json")
    experiments = json.loads(file.read_text(encoding="utf-8"))["experiments"]
    return {(e["name"], line["policy"], line["hints"]): line for e in experiments for line in e["lines"]}


def page(name: str) -> str:
    """Its words, one space between each two."""
    return " ".join((DOCS / "policies" / f"{name}.md").read_text(encoding="utf-8").split())


def said(row: dict[str, Any], what: str) -> str:
    """A figure with its interval, as pages write it."""
    return signed(row[what], row[f"{what}_interval"]).replace("-", "−")


def test_adaptive_on_sessions_on_which_nothing_was_chosen() -> None:
    line = evidence()["held-out", "adaptive", "true"]
    for point in line["points"]:
        gaps = [pair["gap"] for pair in point["pairs"]]
        span = f"{100 * min(gaps):.1f} to {100 * max(gaps):.1f} %"
        row = f"| {point['percent']:g} % | {said(point, 'gap')} | {span} | {said(point, 'recomputed')} | no seed |"
        assert row in page("adaptive")
        assert len(gaps) == 5 and all(pair["within"][1] >= 0.0 for pair in point["pairs"])
    assert f"| all three | {said(line, 'gap')} |" in page("adaptive")


@pytest.mark.parametrize("hints", ["true", "missing", "shuffled", "x10", "x2", "tenth", "adversarial"])
def test_adaptive_under_wrong_hints(hints: str) -> None:
    (point,) = evidence()["hints", "adaptive", hints]["points"]
    assert f"| {said(point, 'recomputed')} | {said(point, 'gap')} |" in page("adaptive")
    assert len(point["pairs"]) == 5 and point["recomputed"] <= 0.02


@pytest.mark.parametrize("policy", MIXED)
def test_agents_and_its_parts_on_the_mixed_workload(policy: str) -> None:
    (point,) = evidence()["mixed", policy, "true"]["points"]
    assert f"| {said(point, 'gap')} | {said(point, 'recomputed')} |" in page("agents")
    assert len(point["pairs"]) == 5
    if policy in ("continuum", "base", "tree_of_thought", "kvflow"):
        assert said(point, "gap").replace(" %", "") in page(policy).replace(" %", "")


@pytest.mark.parametrize(("name", "policy"), [("continuum_released", "continuum-released"), ("base", "base")])
def test_policies_that_change_little_on_coding_sessions(name: str, policy: str) -> None:
    line = evidence()["held-out", policy, "true"]
    for row in (line, *line["points"]):
        assert said(row, "gap").replace("−0.0", "0.0") in page(name)


@pytest.mark.parametrize("experiment", ["begun", "roomy", "blocks"])
def test_adaptive_with_other_servers_sizes_and_blocks(experiment: str) -> None:
    line = evidence()[experiment, "adaptive", "true"]
    for row in (line, *line["points"]):
        assert said(row, "gap") in page("adaptive")
