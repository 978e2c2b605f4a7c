"""What one owner does changes what rules read for others: heads found cached, steps of a run, branches of a trunk."""

from __future__ import annotations

from kvpolicy.policy.model import Subject
from kvpolicy.request import Owner
from tests.policies.scene import Part, Scene

HEAD: list[Part] = [("tools", "tools", 1), ("system", "sys", 2)]
SHARED = "policy shared\nsystem when hits(system) else 0 > 0 { priority: 60 }\n"


def hits(scene: Scene, kind: str, agent: str | None = None) -> float | None:
    return scene.steering.state.read("hits", kind, Subject(kind, {}, Owner(agent=agent)))


def test_a_head_found_by_another_owner_counts_and_one_s_own_does_not() -> None:
    scene = Scene(SHARED, 100)
    ann, bob = Owner(session="ann"), Owner(session="bob")
    for turn in range(3):
        scene.ask(ann, [*HEAD, ("turn", f"ann{turn}", 1)], finished=True)
    assert hits(scene, "system") is None
    scene.ask(bob, [*HEAD, ("turn", "bob", 1)], finished=True)
    scene.ask(bob, [*HEAD, ("turn", "bob", 2)], finished=True)
    assert hits(scene, "system") == hits(scene, "tools") == 1
    assert hits(scene, "turn") is None  # another text behind the same head
    assert hits(scene, "system", agent="other") is None


def test_branches_of_one_session_tell_nothing_of_other_sessions() -> None:
    scene = Scene(SHARED, 100)
    for name in ("b1", "b2", "b3"):
        owner = Owner(session="ann", agent="search", branch=name, parent="ann")
        scene.ask(owner, [*HEAD, ("turn", name, 1)], finished=True)
    assert hits(scene, "system", agent="search") is None
    scene.ask(Owner(session="bob", agent="search"), [*HEAD, ("turn", "bob", 1)], finished=True)
    assert hits(scene, "system", agent="search") == 1


def test_only_spans_that_were_found_whole_count() -> None:
    scene = Scene(SHARED, 100)
    scene.ask(Owner(session="ann"), HEAD, finished=True)
    scene.ask(Owner(session="bob"), [HEAD[0], ("system", "other", 2)], finished=True)
    assert hits(scene, "tools") == 1
    assert hits(scene, "system") is None


def test_a_step_of_one_agent_ranks_the_prompts_of_the_others_anew() -> None:
    text = "policy near\nsystem { priority: clamp(100 - 10 * (steps_to_next_use() else 9), 0, 100) }\n"
    scene = Scene(text, 100, graph={"nodes": ["a", "b", "c"], "edges": [["a", "b"], ["b", "c"]]})
    owners = {name: Owner(session="job", run="job", agent=name) for name in "abc"}
    ranks = []
    scene.ask(owners["c"], [("system", "c", 2)], finished=True)  # so that its prompt is there
    scene.tell("workflow_start", run="job")
    for name in "ab":
        scene.ask(owners[name], [("system", name, 2)], finished=True)
        ranks.append(scene.steering.show(["c0", "c0/c1"], 1)["rank"])
    assert ranks == sorted(ranks)
    assert ranks[-1] == 90  # c is next


def test_a_fork_makes_its_prompt_a_trunk() -> None:
    scene = Scene("policy fork\nturn when fan_out() > 1 { priority: 90 }\n", 100)
    trunk: list[Part] = [("turn", "t", 2)]
    scene.ask(Owner(session="s"), trunk, finished=True)
    ranks = []
    for name in ("b1", "b2"):
        branch = Owner(session="s", branch=name, parent="s")
        scene.ask(branch, [*trunk, ("branch", name, 1)], finished=True)
        ranks.append(scene.steering.show(["t0", "t0/t1"], 1)["rank"])
    assert ranks == [35, 90]
