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
def started(
    request: pytest.FixtureRequest, model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Server]]:
    """Those of the servers below that a test of this run asks for, all started at once: most of a start is waiting."""
    asked = {name for item in request.session.items for name in getattr(item, "fixturenames", ())}
    flags = {"steered_server": [], "stock": ["--kvp-off", "--enable-prompt-tokens-details"], "short_lived": []}
    made = {
        name: Server(model, tmp_path_factory.mktemp(name[:2]), words).start()
        for name, words in flags.items()
        if name in asked
    }
    yield made
    for server in made.values():
        server.stop()


@pytest.fixture(scope="session")
def steered_server(started: dict[str, Server]) -> Server:
    """A server of ours."""
    return started["steered_server"].up()


@pytest.fixture
def steered(steered_server: Server) -> Server:
    """A server of ours without claims and with an empty cache."""
    steered_server.tell(do="release_all")
    for row in steered_server.tell(do="show")["claims"]:
        steered_server.tell(do="release", owner=row["owner"] or {"tenant": "default"})
    steered_server.post("/reset_prefix_cache")
    return steered_server


@pytest.fixture(scope="session")
def stock(started: dict[str, Server]) -> Server:
    """The same server as vLLM ships it."""
    return started["stock"].up()


@pytest.fixture(scope="session")
def short_lived(started: dict[str, Server]) -> Server:
    """Another one of ours, to be ended by a test."""
    return started["short_lived"].up()
