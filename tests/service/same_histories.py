"""Small histories, each about one fact that the embedded engine's ledger is told, and a served engine's has to be.

`Both` plays a step on two sides and compares at rest: more than the 2 s after an answer in which a served engine keeps
what it protected, as it is not told at once what comes next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Protocol

from tests.service.same import WAYS, Ask, Embedded

REST_S = 3.7
Messages = list[Mapping[str, Any]]


class Side(Protocol):
    """See `same`."""

    def begin(self, ask: Ask) -> None: ...
    def end(self, ask: Ask) -> None: ...
    def cancel(self, ask: Ask) -> None: ...
    def event(self, name: str, **fields: Any) -> None: ...
    def wait(self, seconds: float) -> None: ...
    def strengths(self, name: str) -> list[int | None]: ...


class Both:
    """Two sides of one history. settled: what is seen of a prompt on the second side, once it is what is wanted there
    or will not be."""

    def __init__(
        self,
        embedded: Embedded,
        served: Side,
        settled: Callable[[str, list[int | None]], list[int | None]] | None = None,
    ) -> None:
        self.embedded, self.served = embedded, served
        self._settled = settled or (lambda name, wanted: served.strengths(name))
        self._sides: tuple[Side, Side] = (embedded, served)
        self._numbers = count(1)
        self._ended: list[str] = []

    def begin(
        self, who: str | Mapping[str, Any], messages: Sequence[Mapping[str, Any]], reply: Any = None, **more: Any
    ) -> Ask:
        """A request comes. who: a session's name, or a context."""
        context = {"session": who} if isinstance(who, str) else who
        ask = Ask(f"r{next(self._numbers)}", context, list(messages), reply or said("answer", 30), **more)
        for side in self._sides:
            side.begin(ask)
        return ask

    def end(self, ask: Ask) -> Messages:
        """Its answer is done. Returns the conversation with it."""
        for side in self._sides:
            side.end(ask)
        self._ended.append(ask.id)
        return [*ask.messages, {"role": "assistant", **ask.reply}]

    def cancel(self, ask: Ask) -> None:
        """Its client has gone."""
        for side in self._sides:
            side.cancel(ask)
        self._ended.append(ask.id)

    def ask(self, *args: Any, **more: Any) -> Messages:
        """A request and its answer, and then a rest."""
        ask = self.begin(*args, **more)
        self.wait(0.1)
        told = self.end(ask)
        self.check(f"after {ask.id}")
        return told

    def event(self, name: str, **fields: Any) -> None:
        """Something happened, and then a rest."""
        self.happens(name, **fields)
        self.check(f"after {name}")

    def happens(self, name: str, **fields: Any) -> None:
        """Something happened."""
        for side in self._sides:
            side.event(name, **fields)

    def wait(self, seconds: float) -> None:
        """Time passes."""
        for side in self._sides:
            side.wait(seconds)

    def check(self, when: str) -> None:
        """After a rest both keep every prompt alike."""
        self.wait(REST_S)
        for name in self._ended:
            wanted = self.embedded.strengths(name)
            seen = self._settled(name, wanted)
            assert seen == wanted, f"{when}, {name}: {seen} served, {wanted} embedded"

    def kept(self, name: str) -> list[int | None]:
        """How strongly the embedded engine keeps a prompt's blocks: by it a history shows what it is about."""
        return self.embedded.strengths(name)


@dataclass(frozen=True)
class History:
    """fact: what a served engine has to know. processes: whether it goes through processes, too: no short clock rules
    it, and nothing in it happens while a request runs. ways: of the plan, in which they are alike."""

    name: str
    fact: str
    policy: str
    play: Callable[[Both], None]
    processes: bool = True
    ways: Sequence[str] = tuple(WAYS)


def words(name: str, number: int) -> str:
    """So many words that no other name has."""
    return " ".join(f"{name}{place}" for place in range(number))


def system(name: str = "system") -> Mapping[str, Any]:
    return {"role": "system", "content": words(name, 60)}


def user(name: str, number: int = 60) -> Mapping[str, Any]:
    return {"role": "user", "content": words(name, number)}


def said(name: str, number: int) -> Mapping[str, Any]:
    return {"content": words(name, number)}


def calls(*ids: str) -> Mapping[str, Any]:
    """An answer that asks for tools."""
    function = {"name": "grep", "arguments": "{}"}
    return {"content": "let me look", "tool_calls": [{"id": i, "type": "function", "function": function} for i in ids]}


def results(*ids: str) -> Messages:
    return [{"role": "tool", "tool_call_id": each, "content": words(f"found{each}", 30)} for each in ids]


PAUSE = """policy p
turn, system, tool_result { priority: 50 }
on tool_call until tool_result { turn, output, tool_result { retention: hold 50min } }
"""
UNTIL = """policy p
turn, system, tool_result { priority: 50 }
held: turn, tool_result { retention: hold until EVENT at most 2h }
"""
PLAIN = "policy p\nturn { priority: 60 }\n"
BASE = (Path(__file__).parents[2] / "policies" / "base.kvp").read_text()
PROTECTED = 250


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


def _cut_short(both: Both) -> None:
    both.ask("s", [system(), user("a")], most=3)
    assert both.kept("r1")[0] == PROTECTED
    both.event("turn_end", session="s")
    assert both.kept("r1")[0] == 50


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


def _ended_before_its_plan(both: Both) -> None:
    ask = both.begin("s", [system("own"), user("a")])
    both.happens("session_end", session="s")
    both.end(ask)
    both.check("its end")
    assert both.kept("r1")[-1] == 35


def _edited_beside_another(both: Both) -> None:
    first = both.begin("s", [system(), user("a")], calls("c1"))
    told = both.begin("s", [system(), user("b")])
    both.end(told)
    other = both.begin("s", [*told.messages, user("c")])
    both.end(first)
    both.end(other)
    both.check("all are done")
    assert both.kept("r2")[-1] == 235


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


def _models(both: Both) -> None:
    both.ask("s", [system(), user("a")])
    both.ask("s", [system(), user("b")], model="small")
    assert both.kept("r1")[-6] == 50
    both.ask("s", [system(), user("c")], model="small")
    assert both.kept("r1")[-6] == 35


def _agents(both: Both) -> None:
    told = both.ask("s", [system(), user("a")], calls("c1"))
    for number in range(3):
        both.ask({"session": "s", "agent": "sub"}, [system(), user(f"sub{number}")])
    assert both.kept("r1")[0] == PROTECTED
    both.event("agent_end", session="s", agent="sub")
    both.ask("s", [*told, *results("c1")])


def _clocks(both: Both) -> None:
    told = both.ask("s", [system(), user("a")])
    for seconds in (2, 10, 5, 20, 20):
        both.wait(seconds)
        both.check(f"{seconds} s later")
    both.ask("s", [*told, user("b")])
    for seconds in (2, 10, 5, 20, 20):
        both.wait(seconds)
        both.check(f"again {seconds} s later")


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


def _drops(both: Both) -> None:
    told = both.ask("s", [system(), user("a")], calls("c1"))
    told = both.ask("s", [*told, *results("c1")])
    assert -1 in both.kept("r2")
    both.ask("t", told[:3])
    both.ask("s", [*told, user("b")])


def _shared_head(both: Both) -> None:
    for number in range(3):
        both.ask(f"s{number}", [HEAD, user(f"a{number}")])
    assert both.kept("r3")[0] == 50


def _steps(both: Both) -> None:
    run = {"run": "r", "workflow": "w"}
    for node in ("plan", "write"):
        both.ask({"session": f"s-{node}", **run, "agent": node, "node": node}, [system(node), user(node)])
    first = both.kept("r1")[0]
    both.ask({"session": "s-check", **run, "agent": "check", "node": "check"}, [system("check"), user("check")])
    assert both.kept("r1")[0] != first


# A request that is withdrawn before its answer began has no engine yet that its plan could follow to.
STREAMED = ("early", "streamed")
HEAD = {"role": "system", "content": " ".join(["word"] * 94)}  # with its two ends it is six blocks
STEPS = """policy p
workflow w { agent plan agent write agent check plan -> write -> check loop check -> plan at most 9 }
any { priority: clamp(100 - 10 * steps_to_next_use() else 9, 40, 100) }
"""

HISTORIES = (
    History("titles", "whose tool calls are open", PAUSE, _titles),
    History("asides", "that a request with the same head is none that the tool's result leads to", PAUSE, _asides),
    History("cut_short", "that a cut answer ends no turn", UNTIL.replace("EVENT", "turn_end"), _cut_short),
    History("side_talk", "that a request goes on, but not where the tool was called", PAUSE, _side_talk),
    History("told_of_a_call", "a call that an event told of", PAUSE, _told_of_a_call),
    History("ended_before_its_plan", "an end before a plan that comes late", PLAIN, _ended_before_its_plan, False),
    History("edited_beside_another", "that nothing dies while its chain runs", PAUSE, _edited_beside_another, False),
    History("side_requests", "what a chain begins with, before places are known", PAUSE, _side_requests),
    History("busy", "that a plan which comes before the first block is no second request", PAUSE, _busy, False),
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
    History("one_of_two", "that another call is open", UNTIL.replace("EVENT", "tool_result"), _one_of_two, False),
    History("result_first", "a result before its request", UNTIL.replace("EVENT", "tool_result"), _result_first, False),
    History("back", "that a human is back", UNTIL.replace("EVENT", "turn_start"), _back),
    History(
        "in_an_interval", "that the event of a hold has come, although its interval is open",
        "policy p\nturn, system { priority: 50 }\n"
        "on tool_call until tool_result { held: turn { retention: hold until step_end at most 50min } }\n",
        _in_an_interval,
    ),
    History("cancelled", "that a request is withdrawn", PLAIN, _cancelled, False),
    History("models", "another model", PAUSE, _models),
    History("agents", "another agent", PAUSE, _agents),
    History(
        "clocks", "holds and lifetimes from the release, and `fixed`",
        "policy p\nturn { retention: hold 20s priority: 60 ttl: 40s }\nsystem { priority: 80 ttl: 1min fixed }\n",
        _clocks, False,
    ),
    History("parallel", "plans of requests that run side by side", PAUSE, _parallel, False),
    History("parallel_the_other_way", "the same, the newer one without a call", PAUSE, _parallel_the_other_way, False),
    History(
        "drops", "what an owner will not send again",
        "policy p\nturn { priority: 60 }\non turn_end until turn_start { tool_result { retention: drop } }\n", _drops,
    ),
    History("shared_head", "that others found a head cached", BASE, _shared_head),
    History("steps", "what others of a run do", STEPS, _steps),
)  # fmt: skip
