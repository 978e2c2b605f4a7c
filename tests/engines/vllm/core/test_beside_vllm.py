"""kvpolicy beside vLLM: installing it moves none of vLLM's pins, and what it declares fits what is there."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

CHECKOUT = Path(__file__).resolve().parents[4]


def installed() -> dict[str, str]:
    return {d.metadata["Name"].lower().replace("_", "-"): d.version for d in distributions()}


def test_what_kvpolicy_declares_fits_what_vllm_brings() -> None:
    """Were its requirements to move a pin of vLLM's, one of them would not accept the version that is here."""
    import tomllib

    declared = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    here = installed()
    clashes = []
    for text in declared:
        requirement = Requirement(text)
        version = here.get(requirement.name.lower().replace("_", "-"))
        if version is not None and not requirement.specifier.contains(version, prereleases=True):
            clashes.append(f"{text} (here: {version})")
    assert clashes == []
    assert "torch" in here


@pytest.mark.skipif(
    not list((Path(sys.prefix) / "lib").glob("python*/site-packages/torch")),
    reason="what vLLM asks for lies in another environment, which pip does not see from here",
)
def test_installing_it_with_all_that_it_asks_for_changes_no_package_that_is_there() -> None:
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-build-isolation", str(CHECKOUT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    would = [word for line in done.stdout.splitlines() if "Would install" in line for word in line.split()[2:]]
    here = installed()
    names = [word.rsplit("-", 1)[0].lower().replace("_", "-") for word in would]
    assert "kvpolicy" in names
    assert [name for name in names if name in here and name != "kvpolicy"] == []
