"""Mends: what a `fix` says is written where that can be done, and never where it would bring another fault."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from kvpolicy.lsp.actions import mends
from kvpolicy.lsp.project import Project, View
from tests.lsp.texts import bad

# Codes whose planted fault can be mended by writing what the fix says; the others ask for a decision of the author.
MENDED = {
    "KVP100", "KVP101", "KVP102", "KVP103", "KVP104", "KVP105", "KVP106", "KVP110", "KVP111", "KVP201", "KVP204",
    "KVP207", "KVP214",
}  # fmt: skip


def _after(view: View, tmp: Path, number: int = 0) -> list[str]:
    """The titles of all mends of a text; each is made, and the codes that are left counted."""
    assert view.main is not None
    text = view.main.file.text
    project = Project()
    before = Counter(fault.code for fault in view.checked.diagnostics)
    titles = []
    for mend in mends(project, view, 0, len(text)):
        changed = text[: mend.start] + mend.text + text[mend.end :]
        (tmp / view.own).write_text(changed, encoding="utf-8")
        after = Counter(fault.code for fault in Project().view(tmp / view.own).checked.diagnostics)
        assert after[mend.fault.code] < before[mend.fault.code], (mend, changed)
        assert sum(after.values()) < sum(before.values()) or not after & before, (mend, after)
        titles.append(mend.title)
    return titles


@pytest.mark.parametrize("path", bad(), ids=lambda path: path.name)
def test_planted_faults(path: Path, tmp_path: Path) -> None:
    for other in path.parent.glob("*.kvp"):
        (tmp_path / other.name).write_bytes(other.read_bytes())
    view = Project().view(tmp_path / path.name)
    if view.main is None:
        return  # not readable at all
    titles = _after(view, tmp_path)
    code = path.name[:6]
    assert bool(titles) == (code in MENDED), titles


@pytest.mark.parametrize(
    ("text", "titles"),
    [
        ("trun { priority: 3 }", ["change 'trun' to 'turn'"]),
        ("turn { ttl: 300  priority: 50 }", ["write 300s", "write 300min", "write 300h"]),
        ("turn { priority: 50.5 }", ["write 50", "write 51"]),
        ("turn { priority: 60  ttl: 5 minuts }", ["write 5min"]),
        ("turn[agent = a { priority: 3 }", ["write `]`"]),
        ("let p = 5s\nturn { ttl: patinece  priority: 50 }\nlet patience = 3s", ["change 'patinece' to 'patience'"]),
        ("a: turn[agent = x] { priority: 3 }\nb: turn[tool = y] { priority: 4 }",
         ["for `priority: 3`: write `over b` in line 1", "for `priority: 4`: write `over a` in line 2"]),
        ("turn { priority: 3, ttl: 5s }", []),
        ("turn { priority: 3 }", []),
    ],
)  # fmt: skip
def test_mends_by_their_titles(text: str, titles: list[str], tmp_path: Path) -> None:
    (tmp_path / "p.kvp").write_text(text, encoding="utf-8")
    view = Project().view(tmp_path / "p.kvp")
    found = _after(view, tmp_path)
    assert found[: len(titles)] == titles if titles else not found or "remove" in found[0]


def test_only_faults_in_the_stretch_are_mended(tmp_path: Path) -> None:
    text = "turn { priorty: 3 }\n\n\nturn { priorty: 3 }\n"
    (tmp_path / "p.kvp").write_text(text, encoding="utf-8")
    view = Project().view(tmp_path / "p.kvp")
    assert [mend.start for mend in mends(Project(), view, 22, len(text))] == [text.rindex("priorty")]
    assert mends(Project(), view, 20, 21) == []
