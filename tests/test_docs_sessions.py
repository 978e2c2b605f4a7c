"""What a page shows of the command line is what the command line says.

A code block behind `<!-- file: NAME -->` is a file; a `console` block holds `$ kvp …` lines, each with what it prints.
A line `…` stands for any lines. `pytest --update` writes the output anew (where no `…` stands).
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from kvpolicy.cli.main import main

ROOT = Path(__file__).resolve().parents[1]
FILE = re.compile(r"^<!-- file: (\S+) -->\n+```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SESSION = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Sessions with servers and pipes need a shell; this test runs them.
IN_A_SHELL = {"service.md": ROOT / "tests" / "service" / "test_ops_docs.py"}
PAGES = [
    page
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if page.name not in IN_A_SHELL and SESSION.search(page.read_text(encoding="utf-8"))
]


def agrees(shown: list[str], printed: list[str]) -> bool:
    """Whether the lines are the same, where `…` stands for any number of lines."""
    pattern = "".join("(?:.*\n)*" if line == "…" else re.escape(line) + "\n" for line in shown)
    return re.fullmatch(pattern, "".join(line + "\n" for line in printed)) is not None


def test_there_are_pages() -> None:
    for name, runs in IN_A_SHELL.items():
        assert name in runs.read_text(encoding="utf-8")
    assert {"language.md", "plan.md", "simulate.md", "workflows.md"} <= {page.name for page in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_shows_is_what_is_printed(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], update: bool
) -> None:
    text = page.read_text(encoding="utf-8")
    for name, body in FILE.findall(text):
        (tmp_path / name).write_text(body, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    written = text
    for block in SESSION.findall(text):
        anew = ""
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            words = shlex.split(command)
            assert words[0] == "kvp", command
            main(words[1:])
            out, err = capsys.readouterr()
            printed = (out + err).splitlines()
            same = agrees(shown.splitlines(), printed)
            assert same or (update and "…" not in shown), f"{page.name}: $ {command}\n{out}{err}"
            anew += f"$ {command}\n" + (shown if same else "".join(line + "\n" for line in printed))
        written = written.replace(f"```console\n{block}```", f"```console\n{anew}```")
    if written != text:
        page.write_text(written, encoding="utf-8")
