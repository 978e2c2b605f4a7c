"""Public fault reports as timelines: pauses, chunks, sub-agents, cancels and retries (C09, C28, C32, C33)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.replay.timeline_steps import finish, named, play, ranks, request, show, span

Row = dict[str, Any]
T0 = 10_000.0  # when the case's timeline starts, behind the history

PAUSE = """
policy c09
let usual = 300s
turn, tool_result { priority: 40  ttl: 5min }
on tool_call until tool_result {
  held: turn, tool_result { retention: hold clamp(p90(tool.duration) else usual, 30s, 600s) }
}
"""
DEFAULT_ONLY = "policy c09b\nturn, tool_result { priority: 40  ttl: 5min }\n"
HISTORY = {"run_tests": [320, 380, 400, 410, 900], "grep": [0.2, 0.3, 0.3, 0.5, 2.0], "deploy": []}


def event(at: float, name: str, **fields: Any) -> Row:
    return {"at": at, "do": "event", "event": {"event": name, **fields}}


def history() -> list[Row]:
    """Each tool's past durations, as another session of the tenant lived them."""
    steps, at = [request(0, "past", "past", hashes=["past"]), finish(0, "past")], 1.0
    for tool, durations in HISTORY.items():
        for number, length in enumerate(durations):
            call = f"{tool}{number}"
            steps.append(event(at, "tool_call", session="past", tool=tool, call=call))
            at += length
            steps.append(event(at, "tool_result", session="past", tool=tool, call=call))
    assert at < T0
    return [*steps, {"at": at, "do": "release", "owner": {"session": "past"}}]


def pause(tool: str, *then: Row) -> list[Row]:
    """The 40 blocks of the case, a call of `tool`, and 60 blocks of nobody in particular behind them."""
    return [
        *history(),
        request(T0, "r1", "s", blocks=("p", 40)),
        finish(T0, "r1", tool_calls=[{"tool": tool, "call": "c"}]),
        request(T0, "filler", None, blocks=("f", 60)),
        finish(T0, "filler"),
        *then,
    ]


@pytest.mark.parametrize(("tool", "seconds"), [("run_tests", 600), ("grep", 30), ("deploy", 300)])
def test_c09_how_long_a_pause_is_held(tmp_path: Path, tool: str, seconds: float) -> None:
    """Nearest rank: of five values the 90th percentile is the fifth."""
    steps = pause(tool, show(T0 + seconds - 0.1, ["p39"]), show(T0 + seconds, ["p39"]))
    before, after = play(tmp_path, steps, PAUSE, "--blocks", "101")[-2:]
    row = before["blocks"][0]
    assert row["protected"] and row["claims"][0]["protected_until"] == T0 + seconds
    assert not after["blocks"][0]["protected"]


RESUME = [
    show(T0 + 399, named("p", 40)),
    {"at": T0 + 400, "do": "evict", "count": 60},
    request(T0 + 400, "r2", "s", hashes=[*named("p", 40), "result"]),
    show(T0 + 400, named("p", 40)),
]


def test_c09_the_prefix_is_there_when_the_tool_returns(tmp_path: Path) -> None:
    """Consumed: the request that carries the result has touched the blocks, and the pause's claims end."""
    held, _, again, after = play(tmp_path, pause("run_tests", *RESUME), PAUSE, "--blocks", "101")[-4:]
    assert [bool(row["claims"]) and row["protected"] for row in held["blocks"]] == [True] * 40
    assert again["cached_tokens"] == 40 * 16
    assert [row["protected"] for row in after["blocks"]] == [False] * 40


def test_c09_with_the_default_lifetime_alone_it_is_not(tmp_path: Path) -> None:
    again = play(tmp_path, pause("run_tests", *RESUME), DEFAULT_ONLY, "--blocks", "101")[-2]
    assert again["cached_tokens"] == 0


def test_c09_an_aborted_pause_claims_nothing(tmp_path: Path) -> None:
    end = [event(T0 + 50, "agent_end", session="s"), {"at": T0 + 50, "do": "stats"}, show(T0 + 50, named("p", 40))]
    *_, stats, shown = play(tmp_path, pause("run_tests", *end), PAUSE, "--blocks", "101")
    assert stats["protected"] == 0
    assert [row["claims"] for row in shown["blocks"]] == [[]] * 40


def test_c28_what_is_full_and_what_is_pending(tmp_path: Path) -> None:
    """Block 2 straddles system and output; it belongs to the output, which holds its last token."""
    spans = [span("system", 0, 40), span("output", 40, None)]
    blocks = [f"r:{i}" for i in range(4)]
    steps = [
        request(0, "r", "s", tokens=list(range(40)), spans=spans, computed=24),
        show(0, blocks),
        {"at": 1, "do": "progress", "id": "r", "computed": 40},
        show(1, blocks),
        {"at": 2, "do": "progress", "id": "r", "accepted": [1, 2, 3, 4, 5, 6]},
        {"at": 3, "do": "progress", "id": "r", "accepted": [7, 8, 9]},
        show(3, blocks),
        {"at": 4, "do": "cancel", "id": "r"},
        show(34, blocks),
        {"at": 34, "do": "stats"},
    ]
    policy = "system { priority: 90 }\noutput { priority: 10 }\n"
    answers = play(tmp_path, steps, policy)
    assert answers[0]["stored"] == ["r:0"]
    assert [row["state"] for row in answers[1]["blocks"]] == ["resident", "computing", "partial", "unknown"]
    assert [row["claims"] == [] for row in answers[1]["blocks"]] == [False, True, True, True]
    assert answers[2]["stored"] == ["r:1"]
    assert answers[4]["stored"] == []
    assert answers[5]["stored"] == ["r:2"]
    last = answers[6]["blocks"]
    assert [row["rank"] for row in last] == [90, 90, 10, None]
    assert last[3]["state"] == "partial" and last[3]["claims"] == []
    assert [row["claims"] for row in answers[8]["blocks"]] == [[]] * 4
    assert answers[9]["claims"] == 0 and answers[9]["requests_remembered"] == 0


C32 = """
policy c32
any[agent = main] { priority: 60  ttl: 1h }
system[agent = sub] { priority: 60  ttl: 5min }
turn[agent = sub] { priority: 50  ttl: 5min }
"""
PARENT, PREFIX = named("main", 100), named("type", 30)


def sub(at: float, number: int, id: str) -> list[Row]:
    own = [f"own{number}-{i}" for i in range(5)]
    owner = {"session": f"sub{number}", "agent": "sub", "parent": "main"}
    spans = [span("system", 0, 480), span("turn", 480, 560)]
    return [request(at, id, hashes=PREFIX + own, owner=owner, spans=spans), finish(at, id)]


def main(at: float, id: str) -> list[Row]:
    owner = {"session": "main", "agent": "main"}
    return [request(at, id, hashes=PARENT, owner=owner), finish(at, id)]


def test_c32_eight_sub_agents(tmp_path: Path) -> None:
    own = [f"own{n}-{i}" for n in range(8) for i in range(5)]
    steps: list[Row] = [
        *main(0, "m0"),
        *(step for n in range(8) for step in sub(0, n, f"s{n}")),
        show(50, PREFIX),
        show(50, own),
        *main(90, "m1"),
        *sub(95, 7, "again"),
        *(event(100, "agent_end", session=f"sub{n}") for n in range(8)),
        show(101, own),
        show(394, PREFIX),
        show(395, PREFIX),
        show(3689, PARENT),
        show(3690, PARENT),
    ]
    answers = play(tmp_path, steps, C32, "--blocks", "500")
    at50, own50 = answers[18]["blocks"], answers[19]["blocks"]
    assert len(at50) == 30 and {row["owners"] for row in at50} == {8}
    assert sum(bool(row["claims"]) for row in own50) == 40
    assert {claim["expires"] for row in at50 for claim in row["claims"] if claim["kind"] == "system"} == {300.0}
    own101, at394, at395, at3689, at3690 = (answer["blocks"] for answer in answers[-5:])
    assert sum(bool(row["claims"]) for row in own101) == 0
    assert [row["rank"] for row in at394] == [60] * 30
    assert [row["rank"] for row in at395] == [35] * 30 and not any(row["claims"] for row in at395)
    assert [row["rank"] for row in at3689] == [60] * 100
    assert [row["rank"] for row in at3690] == [35] * 100 and not any(row["claims"] for row in at3690)


STATS = {"do": "stats"}
C33 = "turn { priority: 60 }\n"


def test_c33_a_retry_joins_what_still_runs(tmp_path: Path) -> None:
    """The client's time-out tells the server nothing."""
    steps = [
        request(0, "first", "s", blocks=("b", 10), key="k1"),
        request(31, "retry", "s", blocks=("b", 10), key="k1"),
        show(32, named("b", 10)),
        STATS | {"at": 32},
        finish(60, "first"),
        show(61, named("b", 10)),
        STATS | {"at": 400},
    ]
    answers = play(tmp_path, steps, C33)
    assert answers[1]["joined"] and answers[1]["stored"] == []
    assert {row["owners"] for row in answers[2]["blocks"]} == {1}
    assert sum(len(row["claims"]) for row in answers[5]["blocks"]) == 10
    assert answers[6]["requests_remembered"] == 0


def test_c33_cancelled_before_anything_was_stored(tmp_path: Path) -> None:
    steps = [
        request(0, "r", "s", blocks=("b", 10), key="k2", computed=0),
        {"at": 0.1, "do": "cancel", "id": "r"},
        show(0.1, named("b", 10)),
        STATS | {"at": 31},
    ]
    answers = play(tmp_path, steps, C33)
    assert [row["claims"] for row in answers[2]["blocks"]] == [[]] * 10
    assert answers[3]["claims"] == 0 and answers[3]["owners"] == 0 and answers[3]["failures"] == 0


def test_c33_cancelled_in_the_middle_of_its_prefill(tmp_path: Path) -> None:
    blocks = named("b", 10)
    steps = [
        request(0, "r", "s", blocks=("b", 10), key="k3", computed=0),
        {"at": 4, "do": "progress", "id": "r", "computed": 64},
        {"at": 5, "do": "cancel", "id": "r"},
        show(6, blocks),
        show(9, blocks),
        finish(9, "r"),
        show(9, blocks),
        show(36, blocks),
        STATS | {"at": 400},
    ]
    answers = play(tmp_path, steps, C33)
    assert [bool(row["claims"]) for row in answers[3]["blocks"]] == [True] * 4 + [False] * 6
    assert [row["state"] for row in answers[3]["blocks"]] == ["resident"] * 4 + ["absent"] * 6
    assert answers[5]["status"] == "unknown"
    assert answers[6]["blocks"] == answers[4]["blocks"]  # the late end had no effect
    assert not any(row["claims"] for row in answers[7]["blocks"])
    assert answers[8]["requests_remembered"] == 0 and answers[8]["claims"] == 0


def test_preempted_and_resumed(tmp_path: Path) -> None:
    """While it is preempted its blocks may leave; what is still there when it goes on it uses again."""
    steps = [
        request(0, "r", "s", blocks=("b", 6)),
        {"at": 1, "do": "preempt", "id": "r"},
        {"at": 2, "do": "evict", "count": 2},
        {"at": 3, "do": "resume", "id": "r"},
        {"at": 3, "do": "resume", "id": "r"},
        show(3, named("b", 6)),
        finish(4, "r"),
        show(4, named("b", 6)),
    ]
    answers = play(tmp_path, steps, C33)
    assert answers[2]["evicted"] == ["b5", "b4"]
    assert answers[3]["own_reused"] == 4 and answers[3]["stored"] == ["b4", "b5"]
    assert answers[4]["status"] == "unknown"
    assert ranks(answers[5]) == [60] * 6
    assert [row["evictable"] for row in answers[5]["blocks"]] == [False] * 6
    assert [row["evictable"] for row in answers[7]["blocks"]] == [True] * 6
