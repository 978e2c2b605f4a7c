"""A program outside the checkout, on an installed wheel, is clean under mypy and pyright; a wrong one is not."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.test_packaging import copy_of_the_tree

PROGRAM = """
import kvpolicy

policy: kvpolicy.Policy = kvpolicy.load("base")
engine = kvpolicy.Engine(policy, blocks=8)
plan: kvpolicy.Plan = engine.plan({"id": "r", "owner": {}, "tokens": 16}, now=0.0)
priorities: list[int | None] = [directive.priority for directive in plan.directives]
service = kvpolicy.Service("http://127.0.0.1:8700")


class Client:
    pass


client: Client = kvpolicy.annotate(Client())


@kvpolicy.tool("fetch")
def fetch(name: str) -> int:
    return len(name)


async def main() -> int:
    async with service.run(session="s") as run, run.step("writer"), kvpolicy.branch("b"):
        with kvpolicy.spans(kvpolicy.mark("document", 0, 1, name="map")), kvpolicy.said(turn=3):
            answers: list[kvpolicy.Answer] = run.barrier("judge")
        return fetch("x") + len(answers)
"""
WRONG = """
import kvpolicy

kvpolicy.Engine("base", blocks="8")
kvpolicy.Service(7)
fetch = kvpolicy.tool("fetch")(len)
fetch(1, 2)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the wheel has in it."""
    at = tmp_path_factory.mktemp("typed")
    tree = copy_of_the_tree(at / "tree")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", str(at), str(tree)], check=True, capture_output=True)
    with zipfile.ZipFile(next(at.glob("*.whl"))) as wheel:
        wheel.extractall(at / "site")
    return at / "site"


def check(tool: str, text: str, installed: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(text)
    if tool == "mypy":
        command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(folder / "cache"), "program.py"]
        told = {"MYPYPATH": str(installed)}
    else:
        (folder / "pyrightconfig.json").write_text(
            f'{{"extraPaths": ["{installed}"], "typeCheckingMode": "standard", "include": ["program.py"]}}'
        )
        command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable]
        told = {}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env={**os.environ, **told}, check=False)


@pytest.mark.parametrize("tool", ["mypy", "pyright"])
def test_clean_from_outside(tool: str, installed: Path, tmp_path: Path) -> None:
    done = check(tool, PROGRAM, installed, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("tool", ["mypy", "pyright"])
def test_what_is_wrong_is_found(tool: str, installed: Path, tmp_path: Path) -> None:
    done = check(tool, WRONG, installed, tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    lines = {line.split(":")[1] for line in done.stdout.splitlines() if "error" in line and "program.py" in line}
    assert {"4", "5", "7"} <= lines, done.stdout
