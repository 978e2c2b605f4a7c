"""Servers for the tests: one a module where the tests leave nothing behind, one a test where they may."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lsp.client import Client


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A server that the tests of a module share; each uses file names of its own."""
    with Client(tmp_path_factory.mktemp("shared")) as client:
        yield client
        assert client.leave() == 0
        assert client.process.stderr is not None and client.process.stderr.read() == b""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Client]:
    """A server of one's own."""
    with Client(tmp_path) as client:
        yield client
