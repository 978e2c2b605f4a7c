"""The direction of imports, and what `import kvpolicy` costs.

Read from the source of every module (imports inside functions and under TYPE_CHECKING count too). The picture of it
stands in docs/architecture.md.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# Earlier rows never import later ones; members of one row may import each other (no cycles: see below).
DIRECTION: tuple[frozenset[str], ...] = (
    frozenset({"kvpolicy.words", "kvpolicy.units", "kvpolicy.faults", "kvpolicy.notebook"}),
    frozenset({"kvpolicy.language", "kvpolicy.request", "kvpolicy.directive"}),
    frozenset({"kvpolicy.policy"}),
    frozenset({"kvpolicy.workflow", "kvpolicy.blocks", "kvpolicy.hashes", "kvpolicy.assumed"}),
    frozenset({"kvpolicy.claims"}),
    frozenset({"kvpolicy.plan", "kvpolicy.history"}),
    frozenset(
        {
            "kvpolicy.pool",
            "kvpolicy.channel",
            "kvpolicy.adapter",
            "kvpolicy.lowering",
            "kvpolicy.engine_check",
            "kvpolicy.request_json",
            "kvpolicy.capabilities_json",
            "kvpolicy.store",
            "kvpolicy.launching",
            "kvpolicy.examining",
        }
    ),
    frozenset({"kvpolicy.steering", "kvpolicy.residency"}),
    frozenset(
        {
            "kvpolicy.simulate",
            "kvpolicy.replay",
            "kvpolicy.runs",
            "kvpolicy.embedded",
            "kvpolicy.loading",
            "kvpolicy.awaited",
            "kvpolicy.calling",
            "kvpolicy.client",
        }
    ),
    frozenset({"kvpolicy.simulated", "kvpolicy.listening", "kvpolicy.record"}),
    frozenset({"kvpolicy.service", "kvpolicy.cli", "kvpolicy.lsp", "kvpolicy.__main__"}),
)
SHELVES = {"kvpolicy.grammar", "kvpolicy.policies", "kvpolicy.adapters"}
# Pieces of one row that still must not see each other.
APART = {("kvpolicy.language", "kvpolicy.request"), ("kvpolicy.language", "kvpolicy.directive")}
HEAVY = ("fastapi", "starlette", "networkx", "redis", "pydantic", "lark", "orjson", "ddsketch", "numpy", "argparse")


def modules() -> dict[str, Path]:
    """Every module of the package in this tree: dotted name -> file."""
    found = {}
    for path in sorted((ROOT / "kvpolicy").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(name: str, path: Path, walk: Callable[[ast.Module], Iterable[ast.AST]] = ast.walk) -> Iterator[str]:
    """The kvpolicy modules that a file imports, as dotted names. walk: the statements that count (default: all)."""
    known = modules()
    for node in walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "kvpolicy")
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
                base = ".".join(package[: len(package) - node.level + 1] + ([base] if base else []))
            if base.split(".")[0] == "kvpolicy":
                for alias in node.names:
                    inner = f"{base}.{alias.name}"
                    yield inner if inner in known else base


def at_import(tree: ast.Module) -> Iterator[ast.AST]:
    """What runs when the module is imported: no function bodies, no TYPE_CHECKING blocks."""
    return _statements(tree, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))


def at_any_time(tree: ast.Module) -> Iterator[ast.AST]:
    """What runs at some time: also what stands in functions, and no TYPE_CHECKING blocks."""
    return _statements(tree, ())


def _statements(tree: ast.Module, passed_over: tuple[type[ast.AST], ...]) -> Iterator[ast.AST]:
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, passed_over):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting.extend(node.orelse)
            continue
        yield node
        waiting.extend(ast.iter_child_nodes(node))


def piece(name: str) -> str:
    """`kvpolicy.pool.tree` -> `kvpolicy.pool`."""
    return ".".join(name.split(".")[:2])


def row(name: str) -> int:
    """The row of DIRECTION a module stands in."""
    return next((i for i, members in enumerate(DIRECTION) if piece(name) in members), -1)


@pytest.mark.parametrize("name", [m for m in modules() if m != "kvpolicy"])
def test_direction_of_imports(name: str) -> None:
    assert row(name) >= 0, f"{name} stands in no row of DIRECTION: say where it belongs"
    for target in imports(name, modules()[name]):
        if target == "kvpolicy":
            continue
        assert piece(target) not in SHELVES, f"{name} imports {target}: shelves are read as resources or entry points"
        assert row(target) >= 0, f"{name} imports {target}, which stands in no row of DIRECTION"
        assert row(target) <= row(name), f"{name} imports {target}, which comes later"
        assert (piece(name), piece(target)) not in APART, f"{name} imports {target}"


def test_the_architecture_page_names_every_piece_and_the_same_direction() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    there = {piece(name).removeprefix("kvpolicy.") for name in modules()} - {"kvpolicy", "__main__"}
    table = re.findall(r"^\| (`[a-z_` ]+`) \|", page, re.MULTILINE)
    assert {name for cell in table for name in re.findall(r"[a-z_]+", cell)} == there
    direction = page.partition("## Direction of imports")[2].split("```")[1]
    drawn = [set(re.findall(r"[a-z_]+", line)) for line in direction.strip().splitlines()]
    assert drawn == [{name.removeprefix("kvpolicy.") for name in members} & there for members in DIRECTION]


def test_the_package_itself_imports_only_faults() -> None:
    assert set(imports("kvpolicy", modules()["kvpolicy"], at_import)) == {"kvpolicy.faults"}


def test_no_import_cycles() -> None:
    """Nor any that an import within a function hides."""
    known = modules()
    edges = {name: {t for t in imports(name, path, at_any_time) if t in known} for name, path in known.items()}
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, "import cycle: " + " -> ".join((*trail[trail.index(name) :], name))
        if name in done:
            return
        for target in sorted(edges[name] - {name}):
            visit(target, (*trail, name))
        done.add(name)

    for name in known:
        visit(name, ())


def test_import_kvpolicy_is_light() -> None:
    program = f"import sys, kvpolicy; print([m for m in {HEAVY!r} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_help_loads_no_command() -> None:
    program = (
        "import sys\nfrom kvpolicy.cli.main import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit as end:\n    assert end.code == 0\n"
        "print([m for m in sys.modules if m.startswith('kvpolicy.') and m not in "
        "('kvpolicy.faults', 'kvpolicy.cli', 'kvpolicy.cli.main')], "
        f"[m for m in {HEAVY[:-1]!r} if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert out.stdout.splitlines()[-1] == "[] []"
