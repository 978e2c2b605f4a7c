"""What a user gets: the shelves importable from a wheel, from an editable install, and wherever one stands.

Each install goes into a fresh virtual environment with `--no-deps`; the dependencies come from the environment that
runs the tests. Nothing here needs the network.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
SHELVES = ("grammar", "policies", "adapters")
TOP = ("pyproject.toml", "setup.py", "README.md", "LICENSE")

# Run in an installed environment: where everything came from, and the data files that `importlib.resources` finds.
REPORT = """
import importlib, importlib.resources, json, pathlib, kvpolicy
places = {"kvpolicy": kvpolicy.__file__}
for shelf in ("grammar", "policies", "adapters"):
    places[shelf] = importlib.import_module(f"kvpolicy.{shelf}").__file__
data = [f.name for s in ("grammar", "policies") for f in importlib.resources.files(f"kvpolicy.{s}").iterdir()
        if f.name.endswith((".lark", ".kvp")) and f.read_text(encoding="utf-8")]
print(json.dumps({"places": places, "data": sorted(data)}))
"""


EDITORS = ROOT / "grammar" / "editors"


def ours(suffixes: tuple[str, ...]) -> set[str]:
    """The files of the tree that belong in a wheel, by the name they have there."""
    found = {p.relative_to(ROOT).as_posix() for p in (ROOT / "kvpolicy").rglob("*") if p.name.endswith(suffixes)}
    for shelf in SHELVES:
        found |= {
            "kvpolicy/" + p.relative_to(ROOT).as_posix()
            for p in (ROOT / shelf).rglob("*")
            if p.name.endswith(suffixes) and EDITORS not in p.parents  # those grammars are copied, not imported
        }
    return found


def copy_of_the_tree(to: Path) -> Path:
    """Only what the build reads, so that nothing is written into the checkout (and no other run disturbs this one)."""
    to.mkdir()
    for name in TOP:
        shutil.copy(ROOT / name, to / name)
    for folder in ("kvpolicy", *SHELVES):
        shutil.copytree(ROOT / folder, to / folder, ignore=shutil.ignore_patterns("__pycache__"))
    return to


def fresh_environment(at: Path) -> Path:
    """An empty virtual environment that sees this one's packages, but not its kvpolicy. Returns its python."""
    venv.create(at, with_pip=False, symlinks=True)
    python = at / "bin" / "python"
    site = Path(sysconfig.get_path("purelib", vars={"base": str(at), "platbase": str(at)}))
    shared = at / "shared"
    shared.mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if "kvpolicy" not in entry.name and entry.suffix != ".pth":
            (shared / entry.name).symlink_to(entry)
    (site / "shared.pth").write_text(f"{shared}\n")
    return python


def install(python: Path, *what: str) -> None:
    """pip of the test environment, working on another one."""
    run(
        [
            sys.executable,
            "-m",
            "pip",
            "--python",
            str(python),
            "install",
            "--quiet",
            "--no-deps",
            "--no-index",
            "--no-build-isolation",
            *what,
        ],
        ROOT,
    )


def run(command: list[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME", "KVPOLICY_DEBUG")}
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done


def look(python: Path, cwd: Path) -> dict[str, dict[str, str]]:
    """Run REPORT in `cwd`."""
    import json

    return json.loads(run([str(python), "-c", REPORT], cwd).stdout)


def data_files() -> list[str]:
    return sorted(Path(name).name for name in ours((".lark", ".kvp")))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    at = tmp_path_factory.mktemp("wheel")
    tree = copy_of_the_tree(at / "tree")
    run(
        [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--no-deps",
            "--no-index",
            "--no-build-isolation",
            "--wheel-dir",
            str(at),
            str(tree),
        ],
        at,
    )
    (built,) = at.glob("*.whl")
    return built


def test_a_wheel_holds_every_module_and_data_file(wheel: Path) -> None:
    held = set(zipfile.ZipFile(wheel).namelist())
    assert ours((".py", ".lark", ".kvp", "py.typed")) <= held
    strangers = {name for name in held if not name.startswith("kvpolicy")}
    assert not strangers, "a top-level package of another name would shadow somebody else's"
    assert any(name.endswith("licenses/LICENSE") for name in held)


def test_a_wheel_install(wheel: Path, tmp_path: Path) -> None:
    python = fresh_environment(tmp_path / "venv")
    install(python, str(wheel))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for cwd in (elsewhere, Path("/")):
        report = look(python, cwd)
        assert all(str(tmp_path / "venv") in place for place in report["places"].values()), report
        assert report["data"] == data_files()
    version = run([str(python), "-m", "kvpolicy", "--version"], elsewhere).stdout
    assert version == run([str(python.parent / "kvp"), "--version"], elsewhere).stdout
    assert version.startswith("kvp ")
    tested = run([str(python.parent / "kvp"), "test", "continuum"], elsewhere).stdout  # its tests travel along
    assert re.fullmatch(r"[1-9]\d* passed, 0 failed.*", tested.strip().splitlines()[-1]), tested


def test_an_editable_install(tmp_path: Path) -> None:
    tree = copy_of_the_tree(tmp_path / "tree")
    python = fresh_environment(tmp_path / "venv")
    install(python, "--editable", str(tree))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    # In the checkout itself `kvpolicy` is found by the working directory; the shelves must be found all the same.
    for cwd in (elsewhere, Path("/"), tree, tree / "kvpolicy" / "cli"):
        report = look(python, cwd)
        assert all(str(tree) in place for place in report["places"].values()), report
        assert report["data"] == data_files()
    (tree / "policies" / "new_one.kvp").write_text("turn { priority: 50 }\n")
    assert "new_one.kvp" in look(python, elsewhere)["data"]
    run([str(python), "-m", "kvpolicy", "--help"], elsewhere)


def test_there_is_data_to_find() -> None:
    assert "kvp.lark" in data_files()
    assert any(name.endswith(".kvp") for name in data_files())


def test_entry_points_lead_somewhere(tmp_path: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    targets = list(project["scripts"].values())
    targets += [t for group in project.get("entry-points", {}).values() for t in group.values()]
    for target in targets:
        module, _, name = target.partition(":")
        if module.startswith("kvpolicy.adapters.frameworks."):  # imports a framework that is an extra
            text = (ROOT / (module.removeprefix("kvpolicy.").replace(".", "/") + ".py")).read_text(encoding="utf-8")
            assert re.search(rf"^(def|class|async def) {name}\b|^{name} =", text, re.MULTILINE), target
            continue
        # Not from beside the checkout: a clone is called `kvpolicy`, and Python would take that folder for the package.
        run([sys.executable, "-c", f"import {module} as m; m.{name}"], tmp_path)


# What an engine's own environment holds (vLLM's pins), and the newest that the tests run with.
@pytest.mark.parametrize(
    ("package", "versions"),
    [
        ("lark", ("1.2.2", "1.3.1")),
        ("fastapi", ("0.133.0", "0.136.0")),
        ("pydantic", ("2.12.0", "2.14.4")),
        ("networkx", ("3.2", "3.6.1")),
        ("redis", ("5.0.0", "7.0.0", "8.1.0")),
        ("orjson", ("3.10.0", "3.13.0")),
        ("ddsketch", ("3.0.0", "3.0.1")),  # no engine pins it, nor six, which it needs
    ],
)
def test_dependency_ranges_stand_beside_an_engine(package: str, versions: tuple[str, ...]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    requirements = {r.name: r for r in map(Requirement, project["dependencies"])}
    assert set(requirements) == {"lark", "fastapi", "pydantic", "networkx", "redis", "orjson", "ddsketch"}
    for version in versions:
        assert Version(version) in requirements[package].specifier
