"""Histories about what ends claims: events, later requests of the chain, withdrawal and time."""

from __future__ import annotations

from tests.service.same_sides import Both, History
from tests.service.same_talk import BASE, PAUSE, PLAIN, PROTECTED, UNTIL, calls, results, said, system, user


def _cut_short(both: Both) -> None:
    both.ask("s", [system(), user("a")], most=3)
    assert both.kept("r1")[0] == PROTECTED
    both.event("turn_end", session="s")
    assert both.kept("r1")[0] == 50


def _ended_before_its_plan(both: Both) -> None:
    ask = both.begin("s", [system("own"), user("a")])
    both.happens("session_end", session="s")
    both.end(ask)
    both.check("its end")
    assert both.kept("r1")[-1] == 35


def _edited(both: Both) -> None:
    told = both.ask("s", [system(), user("a"), {"role": "assistant", **said("b", 30)}, user("c")])
    both.ask("s", [*told[:2], user("edited")])
    assert both.kept("r1")[-6] == 35


def _compacted(both: Both) -> None:
    both.ask("s", [system(), user("a"), {"role": "assistant", **said("b", 30)}, user("c")], calls("c1"))
    both.event("compact", session="s")
    both.ask("s", [system(), user("summary")])
    assert both.kept("r1")[-2] == 35


def _compacts(both: Both) -> None:
    both.ask("s", [system(), user("a"), {"role": "assistant", **said("b", 30)}, user("c")], calls("c1"))
    both.ask("s", [system(), user("summary")], events=[("compact", {})])
    assert both.kept("r1")[-2] == 35


def _finished(both: Both) -> None:
    both.ask("s", [system(), user("a")])
    both.event("session_end", session="s")
    assert both.kept("r1")[-6] == -1


def _ended_while_running(both: Both) -> None:
    told = both.ask("s", [system(), user("a")])
    ask = both.begin("s", [*told, user("b")])
    both.happens("session_end", session="s")
    both.end(ask)
    both.check("its end")


def _lifetimes(both: Both) -> None:
    who = {"session": "s", "run": "r", "agent": "a"}
    told = both.ask(who, [system(), user("a")], calls("c1"))
    told = both.ask(who, [*told, *results("c1")])
    both.ask({**who, "branch": "b1"}, [*told, user("b")])
    both.event("branch_pruned", session="s", branch="b1")
    both.event("session_end", session="s")
    assert both.kept("r1")[8] == 60
    both.event("workflow_end", run="r")
    assert both.kept("r1")[8] == 35


def _for_a_request(both: Both) -> None:
    both.ask("s", [system(), user("a")])
    assert both.kept("r1")[8] == 35


def _back(both: Both) -> None:
    told = both.ask("s", [system(), user("a")])
    assert both.kept("r1")[0] == PROTECTED
    told = both.ask("s", [*told, user("b")])
    both.ask("s", [*told, user("c")])


def _in_an_interval(both: Both) -> None:
    both.ask("s", [system(), user("a")], calls("c1"))
    assert both.kept("r1")[0] == PROTECTED
    both.event("step_end", session="s")
    assert both.kept("r1")[0] == 50
    both.event("barrier", session="s")
    assert both.kept("r1")[0] == 50


def _cancelled(both: Both) -> None:
    told = both.ask("s", [system(), user("a")])
    ask = both.begin("s", [*told, user("b")])
    both.wait(1)
    both.cancel(ask)
    both.check("withdrawn")
    assert both.kept("r2")[-1] == 60
    both.wait(30)
    both.check("30 s later")
    assert both.kept("r2")[-1] == 35
    ask = both.begin("t", [system("own"), user("c")])
    both.wait(1)
    both.cancel(ask)
    both.check("a first request, withdrawn")
    both.wait(30)
    both.check("that, 30 s later")
    assert both.kept("r3")[-1] == 35


def _clocks(both: Both) -> None:
    told = both.ask("s", [system(), user("a")])
    for seconds in (2, 10, 5, 20, 20):
        both.wait(seconds)
        both.check(f"{seconds} s later")
    both.ask("s", [*told, user("b")])
    for seconds in (2, 10, 5, 20, 20):
        both.wait(seconds)
        both.check(f"again {seconds} s later")


def _drops(both: Both) -> None:
    told = both.ask("s", [system(), user("a")], calls("c1"))
    told = both.ask("s", [*told, *results("c1")])
    assert -1 in both.kept("r2")
    both.ask("t", told[:3])
    both.ask("s", [*told, user("b")])


ENDS = (
    History("cut_short", "that a cut answer ends no turn", UNTIL.replace("EVENT", "turn_end"), _cut_short),
    History("ended_before_its_plan", "an end before a plan that comes late", PLAIN, _ended_before_its_plan, False),
    History("edited", "what a chain begins with, where its first plan came late", PAUSE, _edited),
    History("compacted", "that somebody told of a compaction", PAUSE, _compacted),
    History("compacts", "the same, told with the request", PAUSE, _compacts),
    History("finished", "that what a session leaves is dropped before its claims end", BASE, _finished),
    History("ended_while_running", "an end while a request has no engine yet", BASE, _ended_while_running, False),
    History(
        "lifetimes", "ends of branches, sessions and runs",
        "policy p\nturn { priority: 60 for: run }\ntool_result { priority: 70 for: branch }\n"
        "system { priority: 80 for: tenant }\n", _lifetimes,
    ),
    History(
        "for_a_request", "that a request is over whose plan came after it",
        "policy p\nturn { priority: 60 for: request }\nsystem { priority: 80 }\n", _for_a_request,
    ),
    History("back", "that a human is back", UNTIL.replace("EVENT", "turn_start"), _back),
    History(
        "in_an_interval", "that the event of a hold has come, although its interval is open",
        "policy p\nturn, system { priority: 50 }\n"
        "on tool_call until tool_result { held: turn { retention: hold until step_end at most 50min } }\n",
        _in_an_interval,
    ),
    History("cancelled", "that a request is withdrawn", PLAIN, _cancelled, False),
    History(
        "clocks", "holds and lifetimes from the release, and `fixed`",
        "policy p\nturn { retention: hold 20s priority: 60 ttl: 40s }\nsystem { priority: 80 ttl: 1min fixed }\n",
        _clocks, False,
    ),
    History(
        "drops", "what an owner will not send again",
        "policy p\nturn { priority: 60 }\non turn_end until turn_start { tool_result { retention: drop } }\n", _drops,
    ),
)  # fmt: skip
