"""The servers that the live tests share, and a clean slate before each test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.vllm.live.serving import Server


@pytest.fixture(scope="session")
def model() -> Path:
    """The folder of the tiny model, made by the runner."""
    return Path(os.environ["KVPOLICY_TINY_MODEL"])


@pytest.fixture(scope="session")
def steered_server(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(model, tmp_path_factory.mktemp("s")).start()
    yield server
    server.stop()


@pytest.fixture
def steered(steered_server: Server) -> Server:
    """A server of ours without claims and with an empty cache."""
    steered_server.tell(do="release_all")
    for row in steered_server.tell(do="show")["claims"]:
        steered_server.tell(do="release", owner=row["owner"] or {"tenant": "default"})
    steered_server.post("/reset_prefix_cache")
    return steered_server


@pytest.fixture(scope="session")
def stock(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The same server as vLLM ships it."""
    server = Server(model, tmp_path_factory.mktemp("o"), ["--kvp-off", "--enable-prompt-tokens-details"]).start()
    yield server
    server.stop()
