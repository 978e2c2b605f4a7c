"""The sessions of the simulated engine's page: each is run against an engine started as the page says."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from kvpolicy.cli.engine import add_arguments
from tests.simulated.running import running

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "simulated-engine.md").read_text(encoding="utf-8")
SESSIONS = re.findall(r"^<!-- engine: (.*?) -->\n```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def agrees(shown: str, printed: str) -> bool:
    """Whether they are the same, where `…` stands for anything."""
    return re.fullmatch(".*?".join(map(re.escape, shown.split("…"))), printed, re.DOTALL) is not None


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed (apt-get install curl)")
@pytest.mark.parametrize("options, session", SESSIONS)
def test_a_session_of_the_page(options: str, session: str) -> None:
    words = [word for word in options.split() if word not in ("--port", "8000")]
    with running("engine", *words) as url:
        steps = re.split(r"^\$ ", session, flags=re.MULTILINE)[1:]
        assert steps
        for step in steps:
            command, _, shown = step.partition("\n")
            said = shlex.split(command.replace("localhost:8000", url))
            done = subprocess.run(said, capture_output=True, text=True, check=True, timeout=30)
            assert agrees(shown.strip(), done.stdout.strip()), f"$ {command}\n{done.stdout}"


def test_every_option_stands_on_the_page() -> None:
    import argparse

    parser = argparse.ArgumentParser()
    add_arguments(parser)
    table = PAGE.partition("## Options")[2].partition("## Routes")[0]
    named = {option for action in parser._actions for option in action.option_strings if option.startswith("--")}
    assert named - {"--help"} == set(re.findall(r"`(--[a-z-]+)`", table))
    for action in parser._actions:
        if isinstance(action.default, int | float) and action.option_strings[-1] != "--port":
            row = next(line for line in table.splitlines() if f"`{action.option_strings[-1]}`" in line)
            assert f"`{action.default:g}`" in row.replace("`1048576`", f"`{1 << 20:g}`").replace("`0.00002`", "`2e-05`")
