"""Tests in here run with a framework, in an environment of its own: `make test-frameworks`, never `make test`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.client.conftest import Stack, nothing_said_before
from tests.simulated.running import running

__all__ = ["Stack", "nothing_said_before"]

CHOSEN = os.environ.get("KVPOLICY_FRAMEWORK", "")
collect_ignore_glob = [] if CHOSEN else ["test_*.py"]
if CHOSEN == "crewai":  # before it is imported: nothing of its own goes to the network
    os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "OTEL_SDK_DISABLED": "true", "CREWAI_TRACING_ENABLED": "false"}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Stack]]:
    """A service under a policy, in front of a simulated engine, as processes."""
    with ExitStack() as opened:

        def start(policy: str, *, blocks: int = 120, mode: str = "enforce", channel: bool = False) -> Stack:
            folder = tmp_path_factory.mktemp("stack")
            (folder / "policy.kvp").write_text(policy)
            way = ["--channel", f"unix:{folder}/kvp.sock"] if channel else []
            engine = opened.enter_context(running("engine", "--blocks", str(blocks), "--decode-s", "0", *way))
            said = ["--upstream", engine, "--policy", str(folder / "policy.kvp"), "--mode", mode, *way]
            return Stack(opened.enter_context(running("serve", *said, log=Path(folder / "service.log"))), engine)

        yield start
