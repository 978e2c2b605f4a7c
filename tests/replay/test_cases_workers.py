"""Public fault reports as timelines: events of engines that restart, repeat themselves or say nothing (C16, C17)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.replay.timeline_steps import play

Row = dict[str, Any]


def event(worker: str, rank: int, sequence: int, kind: str, *hashes: str, at: float = 0, **more: Any) -> Row:
    told: Row = {"type": kind}
    if kind != "cleared":
        told["hashes"] = list(hashes)
    step: Row = {"at": at, "do": "kv_event", "worker": worker, "rank": rank, "sequence": sequence}
    if "incarnation" in more:
        step["incarnation"] = more.pop("incarnation")
    return step | {"event": told | more}


def lookup(worker: str, rank: int, *blocks: str, at: float = 0) -> Row:
    return {"at": at, "do": "lookup", "worker": worker, "rank": rank, "blocks": list(blocks)}


def present(answer: Row) -> list[str]:
    return [row["block"] for row in answer["blocks"] if row["state"] == "present"]


def c16(**life: str) -> list[Row]:
    """The arrivals of the case; the reader has seen 0 to 40 of rank 0 of w1. life: incarnations, where told."""
    old = {"incarnation": life["old"]} if life else {}
    new = {"incarnation": life["new"]} if life else {}
    everything = ("h1", "h2", "h7", "h9", "r1")
    return [
        *(event("w1", 0, n, "stored", f"b{n}", **old) for n in range(41)),
        event("w1", 0, 41, "stored", "h1", "h2", **old),
        event("w2", 0, 7, "stored", "h1"),
        event("w1", 1, 0, "stored", "r1", **old),
        lookup("w1", 0, *everything),  # 44
        event("w1", 0, 0, "stored", "h9", **new),
        lookup("w1", 0, *everything),  # 46
        lookup("w2", 0, *everything),
        lookup("w1", 1, *everything),
        event("w1", 0, 41, "stored", "h7", **old),  # 49
        lookup("w1", 0, *everything),
        event("w1", 0, 1, "cleared", **new),
        lookup("w1", 0, *everything),
    ]


def test_c16_a_restart_is_told_from_the_numbers(tmp_path: Path) -> None:
    answers = play(tmp_path, c16())
    assert present(answers[44]) == ["h1", "h2"]
    assert present(answers[46]) == ["h9"]  # and nothing of the life before
    assert present(answers[47]) == ["h1"]
    assert present(answers[48]) == ["r1"]  # rank 1 counts for itself: its 0 restarts nobody
    late = answers[50]
    assert {row["block"]: row["state"] for row in late["blocks"]}["h7"] == "unknown"
    assert late["worker"]["state"] == "stale"
    assert present(answers[52]) == []


def test_c16_with_incarnations_the_late_frame_is_told_apart(tmp_path: Path) -> None:
    """A restart ends the blocks of all ranks of its worker."""
    answers = play(tmp_path, c16(old="a", new="b"))
    assert present(answers[46]) == ["h9"]
    assert present(answers[48]) == []
    assert answers[49]["status"] == "ignored"
    assert answers[50]["worker"]["state"] == "live"
    assert {row["block"]: row["state"] for row in answers[50]["blocks"]}["h7"] == "absent"
    assert present(answers[52]) == [] and answers[52]["worker"]["state"] == "live"


def test_c16_a_silent_worker_is_no_worker_without_blocks(tmp_path: Path) -> None:
    steps = [
        {"at": 0, "do": "worker", "worker": "w3"},
        *({"at": 0.1 * n, "do": "request", "id": f"r{n}", "hashes": [n], "worker": "w3"} for n in range(200)),
        lookup("w3", 0, "h1", at=59.9),
        lookup("w3", 0, "h1", at=60),
        {"at": 60, "do": "stats"},
    ]
    answers = play(tmp_path, steps)
    assert answers[-3]["worker"]["state"] == "stale"
    assert answers[-2]["worker"]["state"] == "no_events"
    assert answers[-2]["blocks"][0]["state"] == "unknown"
    assert [(row["name"], row["state"]) for row in answers[-1]["workers"]] == [("w3", "no_events")]


def test_c16_who_joins_late_is_stale_and_knows_what_to_ask_for(tmp_path: Path) -> None:
    steps = [
        event("w1", 0, 17, "stored", "h17"),
        lookup("w1", 0, "h17", "h3"),
        *(event("w1", 0, n, "stored", f"h{n}", via="replay") for n in range(17)),
        lookup("w1", 0, "h17", "h3", "never"),
    ]
    answers = play(tmp_path, steps)
    early = answers[1]
    assert early["worker"]["state"] == "stale" and early["replay_from"] == 0
    assert [row["state"] for row in early["blocks"]] == ["present", "unknown"]
    assert answers[-1]["worker"]["state"] == "live"
    assert [row["state"] for row in answers[-1]["blocks"]] == ["present", "present", "absent"]
    assert answers[-1]["last_sequence"] == 17 and answers[-1]["replay_from"] is None


def test_c17_stored_twice_removed_three_times(tmp_path: Path) -> None:
    steps: list[Row] = [
        event("w1", 0, 0, "stored", "h1"),
        event("w1", 0, 1, "stored", "h1"),
        lookup("w1", 0, "h1"),
        event("w1", 0, 0, "stored", "h1", via="replay"),
        lookup("w1", 0, "h1"),
        event("w1", 0, 2, "removed", "h1"),
        lookup("w1", 0, "h1"),
        event("w1", 0, 3, "removed", "h1"),
        lookup("w1", 0, "h1"),
        event("w1", 0, 4, "removed", "h1"),
        event("w1", 0, 5, "removed", "never_seen"),
        lookup("w1", 0, "h1", "never_seen"),
    ]
    answers = play(tmp_path, steps)
    rows = [answers[i]["blocks"][0] for i in (2, 4, 6, 8, 11)]
    assert [(row["state"], row["copies"]) for row in rows] == [
        ("present", 2),
        ("present", 2),
        ("present", 1),
        ("absent", 0),
        ("absent", 0),
    ]
    assert [answers[i]["worker"]["blocks"] for i in (2, 11)] == [1, 0]
    assert answers[11]["worker"]["state"] == "live"
