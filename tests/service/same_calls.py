"""Histories about tool calls that are open, and requests beside the prompt that waits for one."""

from __future__ import annotations

from tests.service.same_sides import Both, History
from tests.service.same_talk import PAUSE, PROTECTED, UNTIL, calls, results, system, user


def _titles(both: Both) -> None:
    told = both.ask("s", [system(), user("a")], calls("c1"))
    for number in range(3):
        both.ask("s", [system("title"), user(f"t{number}")])
    assert both.kept("r1")[0] == PROTECTED
    both.ask("s", [*told, *results("c1")])
    assert both.kept("r1")[0] == 50


def _asides(both: Both) -> None:
    told = both.ask("s", [system(), user("a")], calls("c1"))
    both.ask("s", [system(), user("other")])
    assert both.kept("r1")[0] == PROTECTED
    both.ask("s", [*told, *results("c1")])


def _side_talk(both: Both) -> None:
    told = both.ask("s", [system(), user("a")], calls("c1"))
    side = both.ask("s", [system("title"), user("t1")])
    both.ask("s", [*side, user("t2")])
    assert both.kept("r1")[0] == PROTECTED
    both.ask("s", [*told, *results("c1")])


def _told_of_a_call(both: Both) -> None:
    told = both.ask("s", [system(), user("a")])
    both.event("tool_call", session="s", tool="make")
    both.ask("s", [system(), user("other")])
    assert both.kept("r1")[0] == PROTECTED
    both.ask("s", [*told, user("b")])


def _side_requests(both: Both) -> None:
    both.ask("s", [system(), user("a")])
    both.ask("s", [system("title"), user("t1")])
    assert both.kept("r1")[-6] == 50
    both.ask("s", [system("title"), user("t2")])
    assert both.kept("r1")[-6] == 35


def _busy(both: Both) -> None:
    both.ask("s", [system(), user("a")])
    other = both.begin("t", [system("long"), user("b")])
    side = both.begin("s", [system("title"), user("t1")])
    both.end(other)
    both.end(side)
    both.check("one side request")
    assert both.kept("r1")[-6] == 50


def _edited_beside_another(both: Both) -> None:
    first = both.begin("s", [system(), user("a")], calls("c1"))
    told = both.begin("s", [system(), user("b")])
    both.end(told)
    other = both.begin("s", [*told.messages, user("c")])
    both.end(first)
    both.end(other)
    both.check("all are done")
    assert both.kept("r2")[-1] == 235


def _parallel(both: Both) -> None:
    told = both.ask("s", [system(), user("a")])
    first = both.begin("s", [*told, user("b")])
    second = both.begin("s", [*told, user("c")], calls("c1"))
    after = both.end(second)
    both.check("one of two made a call")
    both.end(first)
    both.check("both are done")
    assert both.kept("r2")[-1] == both.kept("r3")[-1] == 235
    both.ask("s", [*after, *results("c1")])
    assert both.kept("r2")[-1] == 35


def _parallel_the_other_way(both: Both) -> None:
    told = both.ask("s", [system(), user("a")])
    first = both.begin("s", [*told, user("b")], calls("c1"))
    second = both.begin("s", [*told, user("c")])
    after = both.end(first)
    both.end(second)
    both.check("both are done")
    assert both.kept("r2")[-1] == 235
    both.ask("s", [*after, *results("c1")])


def _one_of_two(both: Both) -> None:
    both.ask("s", [system(), user("a")], calls("c1", "c2"))
    both.event("tool_result", session="s", call="c1")
    both.wait(40)
    both.check("the first result")
    assert both.kept("r1")[0] == PROTECTED
    both.event("tool_result", session="s", call="c2")
    assert both.kept("r1")[0] == PROTECTED
    both.wait(30)
    both.check("both results")
    assert both.kept("r1")[0] == 50


def _result_first(both: Both) -> None:
    told = both.ask("s", [system(), user("a")], calls("c1"))
    both.event("tool_result", session="s", call="c1")
    both.wait(10)
    both.check("the result's event")
    assert both.kept("r1")[0] == PROTECTED
    ask = both.begin("s", [*told, *results("c1")])
    both.wait(10)
    both.end(ask)
    both.check("its request")


CALLS = (
    History("titles", "whose tool calls are open", PAUSE, _titles),
    History("asides", "that a request with the same head is none that the tool's result leads to", PAUSE, _asides),
    History("side_talk", "that a request goes on, but not where the tool was called", PAUSE, _side_talk),
    History("told_of_a_call", "a call that an event told of", PAUSE, _told_of_a_call),
    History("side_requests", "what a chain begins with, before places are known", PAUSE, _side_requests),
    History("busy", "that a plan which comes before the first block is no second request", PAUSE, _busy, False),
    History("edited_beside_another", "that nothing dies while its chain runs", PAUSE, _edited_beside_another, False),
    History("parallel", "plans of requests that run side by side", PAUSE, _parallel, False),
    History("parallel_the_other_way", "the same, the newer one without a call", PAUSE, _parallel_the_other_way, False),
    History("one_of_two", "that another call is open", UNTIL.replace("EVENT", "tool_result"), _one_of_two, False),
    History("result_first", "a result before its request", UNTIL.replace("EVENT", "tool_result"), _result_first, False),
)
