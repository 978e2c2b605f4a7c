"""A service in front of a simulated engine, as processes: `stack(POLICY, …)` starts both and gives their addresses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from kvpolicy.client import once, sending
from tests.simulated.running import running


@pytest.fixture(autouse=True)
def nothing_said_before() -> Iterator[None]:
    """Warnings are counted in the process: a test's services have sent or given up all when the next one begins."""
    before = set(sending._all)
    once.counts.clear()
    yield
    for sender in set(sending._all) - before:
        sender.close()


@dataclass(frozen=True, slots=True)
class Stack:
    """Addresses of the service and of the engine behind it."""

    service: str
    engine: str


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Stack]]:
    with ExitStack() as opened:

        def start(policy: str, *, blocks: int = 400, mode: str = "enforce", config: str = "") -> Stack:
            folder = tmp_path_factory.mktemp("stack")
            file = folder / "policy.kvp"
            file.write_text(policy)
            engine = opened.enter_context(running("engine", "--blocks", str(blocks), "--decode-s", "0"))
            more = []
            if config:
                (folder / "config.toml").write_text(config)
                more = ["--config", str(folder / "config.toml")]
            service = opened.enter_context(
                running("serve", "--upstream", engine, "--policy", str(file), "--mode", mode, *more,
                        log=Path(folder / "service.log"))
            )  # fmt: skip
            return Stack(service, engine)

        yield start
