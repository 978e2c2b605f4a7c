"""The map of the vLLM adapter in its docstring is true: every module stands in it, and imports go downwards."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from kvpolicy.adapters import vllm

PACKAGE = "kvpolicy.adapters.vllm"
FOLDER = Path(vllm.__file__).parent
MAP, _, BESIDE = str(vllm.__doc__).partition("`offload` is")
ROWS = [
    re.split(r"\s{2,}", line.strip(), maxsplit=1)[0].split() for line in MAP.splitlines() if line.startswith("    ")
]
ROW_OF = {name: number for number, row in enumerate(ROWS) for name in row}
OUTSIDE = set(re.findall(r"`(\w+)`", "`offload` is" + BESIDE))


def imported(name: str) -> set[str]:
    """The adapter's modules that one of them imports, wherever in its text."""
    found: set[str] = set()
    for node in ast.walk(ast.parse((FOLDER / f"{name}.py").read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == PACKAGE:
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{PACKAGE}."):
            found.add(str(node.module).removeprefix(f"{PACKAGE}."))
    return found


def test_every_module_stands_in_the_map() -> None:
    assert ROW_OF.keys() | OUTSIDE == {path.stem for path in FOLDER.glob("*.py")} - {"__init__"}
    assert not ROW_OF.keys() & OUTSIDE


@pytest.mark.parametrize("name", ROW_OF)
def test_imports_go_downwards(name: str) -> None:
    for other in imported(name):
        assert other in ROW_OF, f"{name} imports {other}, which is not for the engine's process"
        assert ROW_OF[other] >= ROW_OF[name], f"{name} imports {other}, which stands above it"
