"""The environments of `make test-frameworks`: one an agent framework, outside the checkout, built once for all of them.

They lie under $KVPOLICY_ENGINES (default ~/.cache/kvpolicy) as `framework-NAME`: the framework in the version that its
tests know, what kvpolicy with the extra `serve` needs, and pytest. kvpolicy itself lies beside (`beside.py`), so no
environment knows a checkout. A `ready` file holds the digest of the recipe; one without it was interrupted and is
built anew.

    python3 tests/frameworks/environments.py [NAME…]     build what is missing; prints NAME and its Python
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT))

from tests.frameworks import beside  # noqa: E402

HOME = Path(os.environ.get("KVPOLICY_ENGINES") or Path.home() / ".cache" / "kvpolicy").absolute()
EXTRA = "serve"
TOOLS = ("pytest>=8", "hypothesis>=6.100", "httpx>=0.27,<1", "setuptools>=77")  # the last installs kvpolicy beside


def needed() -> tuple[str, ...]:
    """What kvpolicy of this checkout declares to need for a framework's tests."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return (*project["dependencies"], *project["optional-dependencies"][EXTRA])


@dataclass(frozen=True, slots=True)
class Environment:
    """name: the framework's, as its module in `kvpolicy.adapters.frameworks` is called. packages: what pip installs."""

    name: str
    packages: tuple[str, ...]

    @property
    def folder(self) -> Path:
        """Where it lies."""
        return HOME / f"framework-{self.name}"

    @property
    def python(self) -> Path:
        """The interpreter that has it and kvpolicy of this checkout."""
        return beside.folder(CHECKOUT, self.name) / "bin" / "python"

    @property
    def recipe(self) -> str:
        """A digest of all that decides what is in it."""
        return hashlib.sha256("\n".join([*self.packages, *needed(), *TOOLS, sys.version]).encode()).hexdigest()

    @property
    def ready(self) -> bool:
        """Whether it was built to its end, by this recipe."""
        stamp = self.folder / "ready"
        return stamp.is_file() and stamp.read_text(encoding="utf-8").strip() == self.recipe


ENVIRONMENTS = {
    each.name: each
    for each in (
        Environment("langgraph", ("langgraph==1.2.24", "langchain-openai==1.7.4")),
        Environment("openai_agents", ("openai-agents==0.24.0",)),
        Environment("pydantic_ai", ("pydantic-ai-slim[openai]==2.68.0",)),
        Environment("autogen", ("autogen-agentchat==0.7.5", "autogen-ext[openai]==0.7.5")),
        Environment("crewai", ("crewai==1.15.30",)),
        Environment("claude_agent", ("claude-agent-sdk==0.2.189",)),
        Environment(
            "llama_index",
            ("llama-index-core==0.14.25", "llama-index-workflows==2.26.1", "llama-index-llms-openai-like==0.8.1"),
        ),
    )
}


def build(environment: Environment) -> bool:
    """Build it unless it is ready, and put kvpolicy beside it; False where that did not work (its log says why)."""
    log = HOME / f"framework-{environment.name}.log"
    with log.open("a", encoding="utf-8") as out:

        def done(*command: str) -> bool:
            told = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, check=False)
            if told.returncode:
                print(f"  {environment.name} could not be built: see {log}", file=sys.stderr, flush=True)
            return told.returncode == 0

        if not environment.ready:
            packages = " ".join(environment.packages)
            print(f"— set-up: {packages} in {environment.folder} (once)", file=sys.stderr, flush=True)
            shutil.rmtree(environment.folder, ignore_errors=True)
            pip = (str(environment.folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install")
            if not done(sys.executable, "-m", "venv", str(environment.folder)):
                return False
            if not done(*pip, "--quiet", *environment.packages, *needed(), *TOOLS):
                return False
            (environment.folder / "ready").write_text(environment.recipe + "\n", encoding="utf-8")
        return beside.put(CHECKOUT, environment.name, environment.folder, environment.recipe, done)


def main(names: list[str]) -> int:
    """Build the named environments, or all; 1 where one could not be built."""
    unknown = [name for name in names if name not in ENVIRONMENTS]
    if unknown:
        print(f"no environment {unknown[0]}; there are {', '.join(ENVIRONMENTS)}", file=sys.stderr)
        return 2
    HOME.mkdir(parents=True, exist_ok=True)
    fine = True
    with (HOME / "building-frameworks").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two checkouts may be tested at once
        for name in names or list(ENVIRONMENTS):
            fine = build(ENVIRONMENTS[name]) and fine
            print(f"{name} {ENVIRONMENTS[name].python}", flush=True)
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
