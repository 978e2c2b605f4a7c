"""A served engine keeps what the embedded engine keeps: the same history, played through both.

Every history of the table, with plans that come before, while and after a request runs.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.service.same import Embedded
from tests.service.same_histories import HISTORIES
from tests.service.same_served import WAYS, Served
from tests.service.same_sides import Both, History


@pytest.mark.parametrize(
    ("history", "way"), [pytest.param(each, way, id=f"{each.name}-{way}") for each in HISTORIES for way in WAYS]
)
def test_a_served_engine_keeps_what_the_embedded_one_keeps(history: History, way: str, tmp_path: Path) -> None:
    served = Served(history.policy, tmp_path, way)
    history.play(Both(Embedded(history.policy), served))
    assert served.told
