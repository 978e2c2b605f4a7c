"""Steps that name many blocks: the same rows as one by one, and each prompt gone through once. Calls are counted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kvpolicy.pool import look
from kvpolicy.replay.names import Names
from kvpolicy.replay.replay import Replay
from kvpolicy.steering import show

TRUNK = [f"t{i}" for i in range(40)]
LEFT, RIGHT = [f"l{i}" for i in range(30)], [f"r{i}" for i in range(30)]


def forked(blocks: int = 200) -> Replay:
    """Two sessions that share a trunk, the right one with claims of its own on parts of it."""
    replay = Replay(None, blocks=blocks)
    for name, tail in (("left", LEFT), ("right", RIGHT)):
        replay.step(
            {
                "at": 1.0,
                "do": "request",
                "id": name,
                "owner": {"session": name},
                "hashes": [*TRUNK, *tail],
                "model": "m",
            }
        )
    for name in ("left", "right"):
        replay.step({"at": 2.0, "do": "finish", "id": name})
    for end, priority, hold in (("t9", 80, None), ("t19", 60, "60s"), ("r9", 50, None), ("r29", None, "5s")):
        replay.step(
            {
                "at": 3.0,
                "do": "claim",
                "owner": {"session": "right"},
                "blocks": [end],
                "priority": priority,
                "hold": hold,
            }
        )
    return replay


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """How often prompts were walked, in names and in the pool, and lines looked at."""
    counts: dict[str, int] = {}

    def counting(place: Any, name: str) -> None:
        run = getattr(place, name)

        def counted(*given: Any) -> Any:
            counts[name] = counts.get(name, 0) + 1
            return run(*given)

        monkeypatch.setattr(place, name, counted)

    for place, name in ((Names, "path"), (Names, "_parent"), (look, "along"), (look, "covering"), (show, "_claimed")):
        counting(place, name)
    yield counts


def test_many_blocks_at_once_are_as_one_by_one() -> None:
    replay = forked()
    replay.step({"at": 4.0, "do": "evict", "count": 7})
    asked = ["r3", *LEFT[::-1], "nobody", *TRUNK, "right:75", *RIGHT, "t3", "left:2"]
    together = replay.step({"at": 4.0, "do": "show", "blocks": asked})["blocks"]
    single = [replay.step({"at": 4.0, "do": "show", "blocks": [name]})["blocks"][0] for name in asked]
    assert together == single
    assert {row["state"] for row in together} == {"resident", "absent", "unknown"}
    assert len({(row["rank"], row["protected"], row["owners"]) for row in together}) > 3


def test_a_look_at_many_blocks_walks_each_prompt_once(calls: dict[str, int]) -> None:
    replay = forked()
    runs = replay.stage.pool.runs
    calls.clear()
    rows = replay.step({"at": 4.0, "do": "show", "blocks": [*TRUNK, *LEFT, *RIGHT]})["blocks"]
    assert [row["state"] for row in rows] == ["resident"] * 100
    assert (calls["path"], calls["along"]) == (2, 2)
    assert calls["_parent"] <= 2 * 100
    assert calls["covering"] <= 2 * runs
    assert calls["_claimed"] <= 2 * 7  # lines, for each prompt


def test_a_claim_on_all_blocks_of_a_prompt_walks_it_once(calls: dict[str, int]) -> None:
    replay = forked()
    calls.clear()
    answer = replay.step(
        {"at": 4.0, "do": "claim", "owner": {"session": "x"}, "blocks": [*TRUNK, *LEFT], "priority": 60}
    )
    assert [(hint["status"], hint["granted"]) for hint in answer["hints"]] == [("accepted", 70)]
    assert calls["path"] == 1
    assert calls["_parent"] <= 2 * 70


def test_a_claim_on_two_prompts_makes_two() -> None:
    replay = forked()
    answer = replay.step({"at": 4.0, "do": "claim", "owner": {"session": "x"}, "blocks": ["t3", "l2", "r5", "l2"]})
    assert [hint["requested"] for hint in answer["hints"]] == [43, 46]
