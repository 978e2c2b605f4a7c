"""Runs in Python: steps, tools and branches as contexts, workflows that they follow, from tasks and from threads."""

from __future__ import annotations

import asyncio
import threading

import networkx
import pytest

import kvpolicy
from kvpolicy import Engine, InputFault, Owner, Span
from tests.test_public_face import FLOWS, PAUSE, request

GRAPH = {"nodes": ["planner", "writer"], "edges": [["planner", "writer"]]}


def test_a_run_tells_its_steps_and_tools() -> None:
    engine = Engine(PAUSE, blocks=100)
    with engine.run(workflow=GRAPH, session="s1") as run:
        with run.step("planner"):
            run.request(list(range(64)), [Span("turn", 0, 64)], id="r1", now=0.0)
            engine.finish("r1", now=0.0)
            with run.tool("grep"):
                assert engine.stats()["protected"] == 4
            assert run.request(list(range(80)), id="r2").cached == 4
        with run.step("writer", agent="scribe"):
            run.request(list(range(16)), id="r3")
    assert engine.steering.running["r2"].request.owner == Owner(session="s1", agent="planner")
    assert engine.steering.running["r3"].request.owner == Owner(session="s1", agent="scribe")
    assert engine.steering.running["r3"].request.attributes["node"] == "writer"
    assert run.answers[-1].status == "accepted"
    assert engine.steering.counters["failures"] == 0


def test_steps_of_a_workflow_move_ranks() -> None:
    """Who is one step away keeps more than who is never needed again; no request has to come for it."""
    policy = "turn when steps_to_next_use() else 9 <= 1 { priority: 80 }\n"
    engine = Engine(policy, blocks=100)
    graph = networkx.DiGraph([("planner", "searcher"), ("searcher", "writer")])

    def rank(id: str) -> object:
        return engine.steering.show([f"{id}0"], 0)["rank"]

    with engine.run(workflow=graph, session="s1") as run:
        for node in ("planner", "searcher", "writer"):
            with run.step(node):
                run.request(id=node, hashes=[f"{node}0"])
                engine.finish(node)
        with run.step("planner"):
            assert rank("searcher") == 80 and rank("writer") == 35
        with run.step("searcher"):
            assert rank("writer") == 80
    assert engine.steering.counters["failures"] == 0


def test_a_run_may_name_a_workflow_of_its_policy() -> None:
    engine = Engine(FLOWS, blocks=100)
    with engine.run(workflow="support", session="s1") as run:
        assert run.workflow == "support"
        for node in ("planner", "writer"):
            with run.step(node):
                run.request(id=node, hashes=[f"{node}0"])
                engine.finish(node)
        with run.step("planner"):
            assert engine.steering.show(["writer0"], 0)["rank"] == 80
    for policy, told in (
        (FLOWS, "the policy has no workflow 'suport'; did you mean 'support'"),
        ("turn { priority: 40 }\n", "the policy has no workflow 'suport'; it has none"),
        (None, "no workflow 'suport', as the engine has no policy"),
    ):
        with pytest.raises(InputFault, match=told):
            Engine(policy).run(workflow="suport")


def test_a_failed_step_ends_all_the_same() -> None:
    engine = Engine(PAUSE, blocks=100)
    with pytest.raises(ValueError, match="broken"), engine.run(session="s1") as run, run.step("writer") as step:
        run.request(list(range(16)), id="r")
        raise ValueError("broken")
    assert run.steps == [] and len(step.answers) == 2


def test_branches_and_other_events() -> None:
    engine = Engine("on branch_done { turn { priority: 10 } }\n", blocks=100)
    with engine.run(session="s1") as run:
        with run.branch("b1"):
            run.request(list(range(64)), id="r", branch="b1")
            engine.finish("r")
        owner = Owner(session="s1", branch="b1")
        line = engine.steering.ledger.holder(owner)
        assert line is not None and line.lines()[0].pieces[0][1] == 10
        (answer,) = run.event("branch_scored", branch="b1", score=0.5)
        assert answer.status == "accepted"


def test_the_end_of_a_branch_is_that_of_all_agents_in_it() -> None:
    engine = Engine("on branch_done { turn { priority: 10 } }\n", blocks=100)
    with engine.run(session="s1") as run, run.step("boss"):
        with run.branch("b1"):
            for number, agent in enumerate(("one", "two")):
                with run.step(agent):
                    run.request(hashes=[f"{agent}{number}"], id=agent)
                    engine.finish(agent)
        for agent in ("one", "two"):
            line = engine.steering.ledger.holder(Owner(session="s1", agent=agent, branch="b1"))
            assert line is not None and line.lines()[0].pieces[0][1] == 10


def test_async() -> None:
    async def main() -> None:
        engine = kvpolicy.AsyncEngine(PAUSE, blocks=100)
        assert (await engine.plan(request("r"), now=0.0)).directives
        async with engine.run(workflow=GRAPH, session="s1") as run, run.step("planner"), run.tool("grep") as tool:
            assert (await engine.request(request("a", session="s1"), list(range(64)))).cached == 0
        assert len(tool.answers) == 2
        assert await engine.finish("a", finished=True)
        assert not await engine.cancel("a")
        assert (await engine.event("session_end", session="s1"))[0].status == "accepted"
        await engine.advance()

    asyncio.run(main())


def test_threads() -> None:
    engine = Engine(PAUSE, blocks=50)

    def work(number: int) -> None:
        for turn in range(20):
            with engine.run(session=f"s{number}") as run, run.step("writer"):
                name = f"{number}-{turn}"
                run.request(id=name, hashes=[f"{number}-{i}" for i in range(turn)])
                engine.finish(name, tool_calls=["grep"])

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stats = engine.stats()
    assert stats["failures"] == 0 and stats["requests"] == 80 and stats["requests_remembered"] == 0
