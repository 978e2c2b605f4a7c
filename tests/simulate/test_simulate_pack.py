"""The packaged policies on small scenarios: where they choose other victims than lru, and which rule does it."""

from __future__ import annotations

from pathlib import Path

import pytest

import kvpolicy.policies
from kvpolicy.cli.main import main
from kvpolicy.request import Owner, Request, Span
from kvpolicy.simulate.names import Contender, contender, packaged
from kvpolicy.simulate.replay import Replay
from kvpolicy.simulate.tally import Tally
from kvpolicy.simulate.trace import Answer, Call
from tests.policies import deleting

SHELF = Path(kvpolicy.policies.__path__[0])


def turn(session: str, ids: list[int], at: float, stop: str | None, **more: str) -> Call:
    """A call of 16-token blocks whose first is tools and system, the rest a turn."""
    tokens = 16 * len(ids)
    spans = (Span("tools", 0, 8), Span("system", 8, 16), Span("turn", 16, tokens))
    request = Request(f"{session}@{at}", Owner(session=session), tokens, 16, spans)
    after = ({"event": more["after"], "session": session},) if "after" in more else ()
    return Call(request, ids, at, Answer(stop, (None,) if stop == "tool_use" else ()), (), after)


def last_hits(calls: list[Call], one: Contender, capacity: int) -> int:
    tally = Tally(one.name, False, capacity)
    replay = Replay(one.policy(), capacity, 16, tally)
    for call in calls[:-1]:
        replay.feed(call)
    before = tally.block_hits
    replay.feed(calls[-1])
    assert replay.end().failures == 0
    return tally.block_hits - before


def without(rule: str, name: str) -> Contender:
    """The packaged policy with one labelled rule deleted."""
    text = deleting.without((SHELF / f"{name}.kvp").read_text(), rule)
    return Contender(f"{name} without {rule}", "policy", False, text=text)


def pause(seconds: float, stop: str) -> list[Call]:
    """One session pauses after an answer, others come and go, and it returns."""
    others = [turn(f"o{i}", [10 * i, 10 * i + 1, 10 * i + 2], seconds * i / 9, "end_turn") for i in range(1, 8)]
    return [turn("a", [1, 2, 3, 4], 0.0, stop), *others, turn("a", [1, 2, 3, 4, 5], seconds, "end_turn")]


def test_a_running_tool_keeps_its_prompt() -> None:
    coding_agent = contender("coding_agent")
    for seconds in (15.0, 50.0):
        calls = pause(seconds, "tool_use")
        assert last_hits(calls, contender("lru"), 12) == 0
        assert last_hits(calls, contender("base"), 12) <= 1
        assert last_hits(calls, coding_agent, 12) == 4
        assert last_hits(calls, without("paused", "coding_agent"), 12) <= 1


def test_a_human_s_pause_is_not_a_tool_s() -> None:
    assert last_hits(pause(20.0, "end_turn"), contender("coding_agent"), 12) <= 1


def test_protection_outlasts_what_a_mere_rank_cannot() -> None:
    """Others pause over tools as well: all have one rank, and who was protected first stays."""
    calls = [turn("a", [1, 2, 3, 4], 0.0, "tool_use")]
    calls += [turn(f"o{i}", [10 * i, 10 * i + 1, 10 * i + 2], float(i), "tool_use") for i in range(1, 8)]
    calls.append(turn("a", [1, 2, 3, 4, 5], 15.0, "end_turn"))
    assert last_hits(calls, contender("coding_agent"), 12) == 4
    text = (SHELF / "coding_agent.kvp").read_text().replace("retention: hold short_pause", "")
    assert last_hits(calls, Contender("a mere rank", "policy", False, text=text), 12) == 0


def test_base_lets_go_of_finished_sessions_first() -> None:
    """The finished session was used last, and still leaves first."""
    calls = [
        turn("a", [1, 2, 3, 4], 0.0, "end_turn"),
        turn("b", [10, 11, 12, 13], 1.0, "end_turn", after="session_end"),
        turn("c", [20, 21, 22], 100.0, "end_turn"),
        turn("a", [1, 2, 3, 4, 5], 101.0, "end_turn"),
    ]
    assert last_hits(calls, contender("lru"), 9) < 4
    assert last_hits(calls, contender("base"), 9) == 4
    assert last_hits(calls, without("finished", "base"), 9) < 4


def head_shared(times: int) -> list[Call]:
    """Sessions that share a head, one after the other; then others come and go, and one more session of that head."""
    calls = [turn(f"a{i}", [1, 100 + i, 200 + i], float(i), "end_turn") for i in range(times)]
    calls += [turn(f"o{i}", [10 * i, 10 * i + 1, 10 * i + 2], 10.0 + i, "end_turn") for i in range(1, 5)]
    return [*calls, turn("next", [1, 7, 8], 19.0, "end_turn")]


def test_base_keeps_a_head_that_sessions_share() -> None:
    calls = head_shared(2)
    assert last_hits(calls, contender("lru"), 8) == 0
    assert last_hits(calls, contender("base"), 8) == 1
    assert last_hits(calls, without("head", "base"), 8) == 0


def test_base_keeps_no_head_that_one_session_alone_has_used() -> None:
    assert last_hits(head_shared(1), contender("base"), 8) == 0


@pytest.mark.parametrize("name", packaged())
def test_packaged_policies_pass_their_own_checks_and_tests(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", name]) == 0
    assert main(["test", name]) == 0
    assert "0 failed" in capsys.readouterr().out
