"""A gateway and an engine as processes keep what the embedded engine keeps: the histories that need no clock."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.service.same import Embedded
from tests.service.same_histories import HISTORIES
from tests.service.same_processes import Processes, processes
from tests.service.same_sides import Both, History

PLAYED = [history for history in HISTORIES if history.processes]


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Processes]]:
    with processes(tmp_path_factory.mktemp("same"), PLAYED) as made:
        yield made


@pytest.mark.parametrize("history", PLAYED, ids=lambda history: history.name)
def test_processes_keep_what_the_embedded_engine_keeps(history: History, sides: dict[str, Processes]) -> None:
    side = sides[history.name]
    history.play(Both(Embedded(history.policy), side, side.settled))
