"""kvpolicy of one checkout beside an environment that any checkout may use.

A small virtual environment in the checkout (`.venv/frameworks/NAME`, some seconds to make) reads its packages from the
shared one and has kvpolicy installed editable, with the entry points that its frameworks are found by. So two checkouts
are tested at once with one framework, each its own code, and `make clean` takes it away.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

_SHARED = "shared.pth"
_STAMP = "ready"


def folder(checkout: Path, name: str) -> Path:
    """Where that of an environment lies."""
    return checkout / ".venv" / "frameworks" / name


def put(checkout: Path, name: str, shared: Path, recipe: str, done: Callable[..., bool]) -> bool:
    """Make it, unless it was made of these; False where that did not work. shared: the environment's folder. recipe: a
    digest of what is in that. done: runs a command, and says whether it ended well."""
    own = folder(checkout, name)
    stamp, wanted = own / _STAMP, _digest(checkout, shared, recipe)
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
        return True
    shutil.rmtree(own, ignore_errors=True)
    if not done(sys.executable, "-m", "venv", "--without-pip", str(own)):
        return False
    line = f"import site; site.addsitedir({str(_site(shared))!r})\n"  # not its path alone: its own .pth files count
    (_site(own) / _SHARED).write_text(line, encoding="utf-8")
    # setuptools is the shared one's: nothing is downloaded.
    pip = (str(shared / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--python", str(own))
    if not done(*pip, "install", "--quiet", "--no-deps", "--no-build-isolation", "-e", str(checkout)):
        return False
    stamp.write_text(wanted, encoding="utf-8")
    return True


def _site(environment: Path) -> Path:
    """An environment's packages."""
    return environment / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"


def _digest(checkout: Path, shared: Path, recipe: str) -> str:
    """Of all that decides what it is: where both lie, what is declared, and which packages there are."""
    declared = [(checkout / name).read_text(encoding="utf-8") for name in ("pyproject.toml", "setup.py")]
    packages = sorted(str(path) for path in checkout.glob("[agkp]*/**/__init__.py"))
    return hashlib.sha256(repr([str(shared), recipe, *declared, *packages]).encode()).hexdigest()
