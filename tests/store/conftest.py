"""A Redis server for the whole folder, and a prefix of its own for each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from kvpolicy.store.redis import RedisStore
from kvpolicy.store.settings import Settings
from tests.store.servers import Server, cluster

# Tests run on slow shared machines: what a call may wait is not what they are about, unless they say so.
PATIENT = Settings(budget=5.0, patience=5.0, timeout=5.0, poll=0.005)

Open = Callable[..., RedisStore]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that no test harms."""
    with Server(tmp_path_factory.mktemp("redis")) as started:
        yield started


@pytest.fixture(scope="session")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    """A cluster of three nodes that no test harms."""
    with cluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    """A server that the test may harm."""
    with Server(tmp_path / "redis") as started:
        yield started


@pytest.fixture
def prefix() -> str:
    """A key prefix that nobody else uses."""
    return f"test.{uuid4().hex[:8]}"


@pytest.fixture
def open_store(prefix: str) -> Iterator[Open]:
    """Makes stores of one prefix, and closes them."""
    opened: list[RedisStore] = []

    def make(url: str, folder: Path | None = None, **changes: object) -> RedisStore:
        settings = replace(PATIENT, prefix=prefix)
        store = RedisStore(url, replace(settings, **changes), folder)  # type: ignore[arg-type]
        opened.append(store)
        return store

    yield make
    for store in opened:
        store.close()
