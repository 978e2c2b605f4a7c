"""One small scenario a policy: what each does on it is a list of blocks found cached by the requests that matter.

They run as in a service. The pages in `docs/policies` tell them in words; `python -m tests.policies.scenarios` prints
what each policy finds.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from kvpolicy.request import Owner
from kvpolicy.workflow.gauges import CostModel
from tests.policies.scene import Part, Scene, text_of

Play = Callable[[str | None], list[int]]


def base(text: str | None) -> list[int]:
    """Two sessions share a head and others come; then a third of that head. And: a session is over, another returns."""
    scene = Scene(text, 12)
    head: list[Part] = [("tools", "tools", 1), ("system", "sys", 2)]
    for name in ("ann", "bob"):
        scene.ask(Owner(session=name), [*head, ("turn", name, 1)], finished=True)
    scene.crowd(6, 3, 10.0)
    found = [scene.ask(Owner(session="cem"), [*head, ("turn", "cem", 1)], finished=True)]
    assert not scene.failures()
    scene = Scene(text, 12)
    stays, leaves = Owner(session="stays"), Owner(session="leaves")
    scene.ask(stays, [("turn", "stays", 5)], finished=True)
    scene.ask(leaves, [("turn", "leaves", 5)], finished=True)
    scene.tell("session_end", session="leaves")
    scene.crowd(1, 6)
    found.append(scene.ask(stays, [("turn", "stays", 5)], finished=True))
    assert not scene.failures()
    return found


def coding_agent(text: str | None) -> list[int]:
    """A tool takes 15 s while others' tools run, too; and one takes 50 s while others wait for their humans."""
    found = []
    for seconds, others in ((15.0, {"tool_calls": ["tests"]}), (50.0, {"finished": True})):
        scene = Scene(text, 20)
        coder = Owner(session="coder")
        prompt: list[Part] = [("system", "sys", 2), ("turn", "task", 5)]
        scene.ask(coder, prompt, tool_calls=["tests"])
        scene.crowd(10, 4, seconds / 10, **others)
        found.append(scene.ask(coder, [*prompt, ("tool_result", "found", 1)], finished=True))
        assert not scene.failures()
    return found


def adaptive(text: str | None) -> list[int]:
    """Twenty sessions have shown that tools take 8 s and that humans do not come back soon. Then a tool runs while ten
    others wait for their humans."""
    scene = Scene(text, 20)
    for number in range(20):
        past = Owner(session=f"past{number}")
        scene.ask(past, [("turn", f"past{number}-", 1)], 0.0, tool_calls=["search"])
        scene.now += 8.0
        scene.ask(past, [("turn", f"past{number}-", 1)], 0.0, finished=True)
    scene.now += 600.0
    coder = Owner(session="coder")
    prompt: list[Part] = [("system", "sys", 2), ("turn", "task", 5)]
    scene.ask(coder, prompt, 0.0, tool_calls=["search"])
    scene.crowd(10, 4, 0.5)
    scene.now += 3.0
    found = [scene.ask(coder, [*prompt, ("tool_result", "found", 1)], finished=True)]
    assert not scene.failures()
    return found


def continuum(text: str | None) -> list[int]:
    """A tool that takes 8 s, seen 120 times; prefilling again takes 40 s. Others flood the pool for 6 s."""
    scene = Scene(text, 20)
    scene.steering.state.gauges.cost = CostModel(prefill_tokens_per_s=2.0)
    _learn(scene, "search", 8.0, 120)
    coder = Owner(session="coder")
    prompt: list[Part] = [("system", "sys", 2), ("turn", "task", 5)]
    scene.ask(coder, prompt, tool_calls=["search"])
    scene.crowd(12, 4, 0.5)
    scene.now += 2.0
    found = [scene.ask(coder, [*prompt, ("tool_result", "found", 1)], finished=True)]
    assert not scene.failures()
    return found


def continuum_released(text: str | None) -> list[int]:
    """Two tools, one of 1 s and one of 30 s, each seen before; others flood the pool for 1 s."""
    found = []
    for tool, seconds in (("grep", 1.0), ("build", 30.0)):
        scene = Scene(text, 20)
        _learn(scene, tool, seconds, 3)
        coder = Owner(session="coder")
        prompt: list[Part] = [("system", "sys", 2), ("turn", "task", 5)]
        scene.ask(coder, prompt, tool_calls=[tool])
        scene.crowd(10, 4, 0.1)
        found.append(scene.ask(coder, [*prompt, ("tool_result", "found", 1)], finished=True))
        assert not scene.failures()
    return found


def chat_rag(text: str | None) -> list[int]:
    """Ann asks about the handbook; after two minutes of other chats Bob asks about it, too."""
    scene = Scene(text, 24)
    head: list[Part] = [("system", "sys", 2), ("document", "handbook", 8)]
    scene.ask(Owner(session="ann"), [*head, ("turn", "ann", 2)], finished=True)
    scene.crowd(12, 4, 10.0)
    found = [scene.ask(Owner(session="bob"), [*head, ("turn", "bob", 2)], finished=True)]
    assert not scene.failures()
    return found


def kvflow(text: str | None) -> list[int]:
    """Four agents in a ring, each with a fixed prefix of 6 blocks and a new suffix of 3 a step; room for three.

    The engine's own order loses just the agent that is next."""
    names = ("plan", "search", "write", "review")
    ring = {
        "nodes": names,
        "edges": [*pairwise(names)],
        "loops": [{"from": "review", "to": "plan", "at_most": 9}],
    }
    scene = Scene(text, 24, graph=ring)
    found = []
    for turn in range(4):
        for name in names:
            owner = Owner(session="job", run="job", agent=name)
            prompt: list[Part] = [("system", name, 6), ("turn", f"{name}{turn}-", 3)]
            found.append(scene.ask(owner, prompt, finished=True))
    assert not scene.failures()
    return [sum(found)]


def tree_of_thought(text: str | None) -> list[int]:
    """A trunk of 8 blocks, behind it branches of 3; others think, too, after the second branch and after the barrier,
    at which the fourth, of which nobody has said that it is done, turns out to be the best. Found by: the third branch
    (the trunk), and the best as it goes on."""
    scene = Scene(text, 26)
    trunk: list[Part] = [("system", "sys", 2), ("turn", "problem", 6)]
    scene.ask(Owner(session="search", run="search"), trunk, finished=True)
    found = []
    for place, name in ((4, "b1"), (3, "b2"), (2, "b3"), (1, "b4")):
        thinker = Owner(session="search", run="search", branch=name, parent="search")
        found.append(scene.ask(thinker, [*trunk, ("branch", name, 3)], finished=True))
        if name != "b4":  # nobody says of the best that it is done
            scene.tell("branch_done", run="search", branch=name)
        scene.tell("branch_scored", run="search", branch=name, rank=place)
        if name == "b2":
            _thoughts(scene, 6)
    scene.tell("barrier", run="search")
    _thoughts(scene, 4)
    best = Owner(session="search", run="search", branch="b4", parent="search")
    onward = scene.ask(best, [*trunk, ("branch", "b4", 3), ("turn", "next", 1)], finished=True)
    assert not scene.failures()
    return [found[2], onward]


def agents(text: str | None) -> list[int]:
    """All at once in one pool. A planner hands to a coder and a tester, both to a critic, and that one back. The
    coder's tool takes 8 s, as always, the tester's takes longer; the critic searches in branches; then the planner is
    due, and a third session with a head that two have used. Found by: the coder and the tester as their tools return,
    the critic's last branch, the planner, the third session."""
    graph = {
        "nodes": ["planner", "coder", "tester", "critic"],
        "edges": [["planner", "coder"], ["planner", "tester"], ["coder", "critic"], ["tester", "critic"]],
        "joins": {"critic": "and"},
        "loops": [{"from": "critic", "to": "planner", "at_most": 9}],
    }
    scene = Scene(text, 48, graph=graph)
    scene.steering.state.gauges.cost = CostModel(prefill_tokens_per_s=2.0)
    _learn(scene, "build", 8.0, 120)

    def owner(name: str, branch: str | None = None) -> Owner:
        return Owner(session="job", run="job", agent=name, branch=branch, parent=None if branch is None else "job")

    def prompt(name: str, kind: str, *more: str) -> list[Part]:
        return [("system", name, 4), ("turn", f"{name}-task", 4), *((kind, each, 2) for each in more)]

    for name in ("ann", "bob"):
        scene.ask(Owner(session=name), [("system", "chat", 3), ("turn", name, 1)], finished=True)
    scene.ask(owner("planner"), prompt("planner", "turn"), finished=True)
    scene.ask(owner("coder"), prompt("coder", "turn"), 0.0, tool_calls=["build"])
    scene.now += 1.0
    scene.ask(owner("tester"), prompt("tester", "turn"), 0.0, tool_calls=["deploy"])
    scene.crowd(12, 4, 0.5)
    scene.now += 1.0
    found = [scene.ask(owner("coder"), prompt("coder", "tool_result", "log"), finished=True)]
    scene.now += 5.0
    scene.crowd(1, 4, 1.0)
    found.append(scene.ask(owner("tester"), prompt("tester", "tool_result", "log"), finished=True))
    scene.ask(owner("critic"), prompt("critic", "turn"))
    for name in ("b1", "b2", "b3"):
        branch = scene.ask(owner("critic", name), prompt("critic", "branch", name), finished=True)
        scene.tell("branch_done", run="job", branch=name)
        scene.crowd(12, 4, 1.0)
    found.append(branch)
    scene.tell("step_end", run="job", node="critic")
    found.append(scene.ask(owner("planner"), prompt("planner", "turn", "next"), finished=True))
    found.append(scene.ask(Owner(session="cem"), [("system", "chat", 3), ("turn", "cem", 1)], finished=True))
    assert not scene.failures()
    return found


def _thoughts(scene: Scene, count: int) -> None:
    """Branches of other searches, each with a prompt of five blocks of its own, which go on."""
    for _ in range(count):
        scene.now += 1.0
        name = f"thought{scene.now}-"
        other = Owner(session=name, run=name, branch="b", parent=name)
        scene.ask(other, [("turn", name, 2), ("branch", f"{name}b", 3)], 0.0, finished=True)


def _learn(scene: Scene, tool: str, seconds: float, times: int) -> None:
    """Somebody else has called the tool that often."""
    for _ in range(times):
        other = Owner(session="other")
        scene.ask(other, [("turn", "other", 1)], 0.0, tool_calls=[tool])
        scene.now += seconds
        scene.ask(other, [("turn", "other", 1), ("tool_result", "r", 1)], 0.0, finished=True)


SCENARIOS: dict[str, Play] = {
    "base": base,
    "coding_agent": coding_agent,
    "adaptive": adaptive,
    "continuum": continuum,
    "continuum_released": continuum_released,
    "chat_rag": chat_rag,
    "kvflow": kvflow,
    "tree_of_thought": tree_of_thought,
    "agents": agents,
}


def main() -> None:
    """Print what each policy finds cached on its scenario, beside the engine's own order and `base`."""
    print(f"{'scenario':20}{'policy':>16}{'lru':>16}{'base':>16}    blocks found cached")
    for name, play in SCENARIOS.items():
        print(f"{name:20}{play(text_of(name))!s:>16}{play(None)!s:>16}{play(text_of('base'))!s:>16}")


if __name__ == "__main__":
    main()
