"""The documentation is tested: every ```kvp block passes `kvp check`, every ```python block runs, every link,
path, `make` target and `kvp` command named in a text exists.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from kvpolicy.cli import main as dispatcher

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted(
    (ROOT / "docs").rglob("*.md")
)
FILE = re.compile(r"^<!-- file: (\S+) -->\n+```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[tuple[str, str]]:
    """The code blocks of one language: (page and line, text)."""
    found = []
    for page in PAGES:
        if page.parent.name == "codes":  # each shows a fault and its mend: tests of their own run both
            continue
        text = page.read_text(encoding="utf-8")
        for block in BLOCK.finditer(text):
            if block[1] == language:
                place = f"{page.relative_to(ROOT)}:{text[: block.start()].count(chr(10)) + 1}"
                found.append((place, block[2]))
    return found


@pytest.mark.parametrize("place, text", [pytest.param(*row, id=row[0]) for row in blocks("kvp")])
def test_policies_in_the_documentation_pass_their_checks(
    place: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = ROOT / place.rpartition(":")[0]
    for name, body in FILE.findall(page.read_text(encoding="utf-8")):  # they may use each other
        (tmp_path / name).write_text(body, encoding="utf-8")
    file = tmp_path / "documented.kvp"
    file.write_text(text, encoding="utf-8")
    status = dispatcher.main(["check", str(file)])
    out, err = capsys.readouterr()
    assert status == 0, out + err
    assert "0 errors, 0 warnings" in out, out


def test_python_in_the_documentation_runs(tmp_path: Path) -> None:
    assert blocks("python")
    for place, text in blocks("python"):
        done = subprocess.run([sys.executable, "-c", text], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{place}\n{done.stderr}"


def anchors(page: Path) -> set[str]:
    """Of a page's headings, as code hosts make them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_targets_and_commands_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
    for target, anchor in re.findall(r"\]\(([^)#]*)#([^)]+)\)", text):
        if "://" not in target and (not target or target.endswith(".md")):
            there = page.parent / target if target else page
            assert anchor in anchors(there), f"{page.name} links to {target}#{anchor}"
    for path in re.findall(r"`((?:kvpolicy|grammar|policies|adapters|tests|docs)/[\w./]*)`", text):
        assert "NAME" in path or (ROOT / path).exists(), f"{page.name} names {path}"
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(re.findall(r"`make ([a-z-]+)", text)) <= targets
    assert set(re.findall(r"`kvp ([a-z]+)", text)) <= set(dispatcher.offered())


def test_the_readme_is_one_screen_with_a_policy_of_ten_lines() -> None:
    readme = ROOT / "README.md"
    assert len(readme.read_text(encoding="utf-8").splitlines()) <= 75
    (policy,) = [b[2] for b in BLOCK.finditer(readme.read_text(encoding="utf-8")) if b[1] == "kvp"]
    assert len(policy.splitlines()) <= 10


def test_every_law_stands_in_the_contract_with_its_tests() -> None:
    text = (ROOT / "docs" / "contract.md").read_text(encoding="utf-8")
    laws = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests" / "laws").glob("test_law_*.py")}
    assert laws == set(re.findall(r"`(tests/laws/test_law_\w+\.py)`", text))
    rows = dict(re.findall(r"^\| (\d+) \| .* \| (`.*`) \|$", text, re.MULTILINE))
    assert list(rows) == [str(number) for number in range(1, 13)]
    assert all(f"/test_law_{number}_" in files for number, files in rows.items())
