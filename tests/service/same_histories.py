"""Small histories, each about one fact that the embedded engine's ledger is told, and a served engine's has to be.

Here those about others than the one chain: models, agents, sessions, a run; and the table of all.
"""

from __future__ import annotations

from tests.service.same_calls import CALLS
from tests.service.same_ends import ENDS
from tests.service.same_sides import Both, History
from tests.service.same_talk import BASE, PAUSE, PROTECTED, calls, results, system, user


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


HEAD = {"role": "system", "content": " ".join(["word"] * 94)}  # with its two ends it is six blocks
STEPS = """policy p
workflow w { agent plan agent write agent check plan -> write -> check loop check -> plan at most 9 }
any { priority: clamp(100 - 10 * steps_to_next_use() else 9, 40, 100) }
"""

OTHERS = (
    History("models", "another model", PAUSE, _models),
    History("agents", "another agent", PAUSE, _agents),
    History("shared_head", "that others found a head cached", BASE, _shared_head),
    History("steps", "what others of a run do", STEPS, _steps),
)
HISTORIES = (*CALLS, *ENDS, *OTHERS)
