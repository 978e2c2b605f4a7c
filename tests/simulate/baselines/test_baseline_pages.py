"""Every name that `--policy` takes as a baseline stands on a page that leads to its own."""

from __future__ import annotations

import re
from pathlib import Path

from kvpolicy.simulate.baselines import BASELINES, FORESIGHT, RULES
from kvpolicy.simulate.names import LRU, ORACLES, contender
from kvpolicy.simulate.published import PUBLISHED
from kvpolicy.simulate.workloads.catalogue import WORKLOADS

DOCS = Path(__file__).resolve().parents[3] / "docs"


def test_the_page_has_every_baseline_and_no_other() -> None:
    page = (DOCS / "baselines" / "README.md").read_text(encoding="utf-8")
    table = page.split("| name |")[1].split("\n\n")[0]
    named = {name for row in table.splitlines()[2:] for name in re.findall(r"`([^`]+)`", row.split("|")[1])}
    assert named == {LRU, *BASELINES, *RULES, *FORESIGHT, *PUBLISHED, *ORACLES}
    assert all(contender(name).baseline for name in named)
    linked = set(re.findall(r"\]\((\w+\.md)\)", table))
    assert linked == {path.name for path in (DOCS / "baselines").glob("*.md")} - {"README.md"}


def test_the_page_of_workloads_has_each() -> None:
    page = (DOCS / "workloads.md").read_text(encoding="utf-8")
    table = page.split("| name |")[1].split("\n\n")[0]
    named = {name for row in table.splitlines()[2:] for name in re.findall(r"`([^`]+)`", row.split("|")[1])}
    assert named == set(WORKLOADS)
