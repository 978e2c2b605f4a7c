"""CrewAI, the real package: crews and flows as the service sees them, and what is cached."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import httpx
from crewai import LLM, Crew, Flow
from crewai.flow.flow import listen, start

import kvpolicy
from kvpolicy.adapters.frameworks.crewai import here, watch
from kvpolicy.client import once
from tests.frameworks.conftest import Stack
from tests.frameworks.crewai_crews import SLOW_S, Engine, agent, crew, fresh, model, served, task
from tests.frameworks.scenes import LONG, all_owners, example, flood, owners

__all__ = ["fresh", "served"]


def test_who_works_decides_what_is_found_again(served: Stack) -> None:
    service, engine = kvpolicy.Service(served.service), Engine()
    llm = model(served, engine)
    agents = [agent("keeper", llm), agent("passer", llm)]
    for turn in range(3):
        if turn == 2:
            flood(served.service)
        with watch(crew(*agents), service, session="found"):
            crew(*agents).kickoff()
    assert [who for who, _ in engine.found] == ["keeper", "passer"] * 3
    assert [count > 100 for _, count in engine.found] == [False, False, True, True, True, False], engine.found
    assert service.flush(SLOW_S) and once.counts == {}
    rows = owners(served.service, session="found")
    assert {(row["agent"], row["phase"]) for row in rows} == {("keeper", "ended"), ("passer", "ended")}


def test_steps_and_the_graph_are_told(served: Stack) -> None:
    service, states = kvpolicy.Service(served.service), []

    def look(output: Any) -> None:
        assert service.flush(SLOW_S)
        run = service._ask("GET", f"/v1/runs/{watched.owner.run}")
        states.append(({row["name"]: row["steps_to_next_use"] for row in run["nodes"]}, run["running"]))

    llm = model(served, Engine())
    agents = [agent(role, llm) for role in ("a", "b", "c")]
    done = Crew(name="three", agents=agents, tasks=[task(each, callback=look) for each in agents])
    with watch(done, service, session="steps") as watched:
        done.kickoff()
    assert [steps for steps, _ in states] == [
        {"a": "never", "b": 1, "c": 2},
        {"a": "never", "b": "never", "c": 1},
        {"a": "never", "b": "never", "c": "never"},
    ]
    assert [running for _, running in states] == [[], [], []] and once.counts == {}
    assert service.flush(SLOW_S)
    run = service._ask("GET", f"/v1/runs/{watched.owner.run}")
    assert run["ended"] and {row["name"] for row in run["nodes"]} == {"a", "b", "c"}  # no node of ours


def test_tasks_on_the_side_are_branches(served: Stack) -> None:
    service, engine = kvpolicy.Service(served.service), Engine()
    llm = model(served, engine)
    first, *side, last = (agent(role, llm) for role in ("first", "one", "two", "two", "last"))
    tasks = [task(first), *(task(each, async_execution=True) for each in side), task(last)]
    team = Crew(agents=[first, *side, last], tasks=tasks)
    with watch(team, service, session="side") as run:
        team.kickoff()
    assert sorted(who for who, _ in engine.found) == ["first", "last", "one", "two", "two"]
    assert engine.found[0][0] == "first" and engine.found[-1][0] == "last"
    assert service.flush(SLOW_S) and once.counts == {}
    all_owners(served.service, "side", 5)
    rows = owners(served.service, session="side")
    assert {row["phase"] for row in rows} == {"ended"} and {row["run"] for row in rows} == {run.owner.run}
    branches = [(row["agent"], (row["branch"] or "").partition("-")[0]) for row in rows]
    assert sorted(branches) == [("first", ""), ("last", ""), ("one", "one"), ("two", "two"), ("two", "two")]
    assert len({row["branch"] for row in rows}) == 4


def test_crews_at_once_do_not_mix(served: Stack) -> None:
    service = kvpolicy.Service(served.service)
    shared = model(served, Engine())

    def work(number: int) -> None:
        team = crew(agent(f"first{number}", shared), agent(f"second{number}", shared))
        with watch(team, service, session=f"threads-{number}"):
            team.kickoff()

    async def awork(number: int) -> None:
        team = crew(agent(f"first{number}", shared), agent(f"second{number}", shared))
        with watch(team, service, session=f"tasks-{number}"):
            await (team.akickoff() if number % 2 else team.kickoff_async())

    async def main() -> None:
        await asyncio.gather(*(awork(number) for number in range(8)))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    asyncio.run(main())
    for kind in ("threads", "tasks"):
        expected = sorted((f"{kind}-{n}", f"{which}{n}") for n in range(8) for which in ("first", "second"))
        assert all_owners(served.service, f"{kind}-", 16) == expected


def test_agents_of_one_role_at_once_are_owners_of_their_own(served: Stack) -> None:
    service, together = kvpolicy.Service(served.service), Barrier(2)

    class Waits(Engine):
        def on_outbound(self, message: httpx.Request) -> httpx.Request:
            if (here() or {}).get("agent") == "{name} of one":
                together.wait(SLOW_S)
            return super().on_outbound(message)

    llm = model(served, Waits())
    team = crew(agent("{name} of one", llm), agent("then", llm))
    with watch(team, service, session="roles") as run:
        asyncio.run(team.kickoff_for_each_async([{"name": "A"}, {"name": "B"}]))
    assert service.flush(SLOW_S) and once.counts == {}
    rows = [row for row in owners(served.service, session="roles") if row["agent"] == "{name} of one"]
    assert [(row["branch"] or "").partition("-")[0] for row in rows].count("{name} of one") == 1, rows
    assert len(rows) == 2 and {(row["run"], row["phase"]) for row in rows} == {(run.owner.run, "ended")}


def test_crews_in_methods_side_by_side_are_owners_of_their_own(served: Stack) -> None:
    service, together = kvpolicy.Service(served.service), Barrier(2)

    class Waits(Engine):
        def on_outbound(self, message: httpx.Request) -> httpx.Request:
            together.wait(SLOW_S)
            return super().on_outbound(message)

    llm = model(served, Waits())

    class Beside(Flow[dict[str, Any]]):
        @start()
        def left(self) -> Any:
            return crew(agent("both", llm)).kickoff()

        @start()
        def right(self) -> Any:
            return crew(agent("both", llm)).kickoff()

    with watch(Beside(), service, session="beside"):
        Beside().kickoff()
    assert service.flush(SLOW_S) and once.counts == {}
    rows = owners(served.service, session="beside")
    told = sorted((row["agent"], (row["branch"] or "").partition("-")[0], row["phase"]) for row in rows)
    assert told == [("both", "", "ended"), ("both", "both", "ended")], rows


def test_methods_of_a_flow_are_its_steps(served: Stack) -> None:
    service, engine = kvpolicy.Service(served.service), Engine()
    llm = model(served, engine)
    places, states = [], []

    class Research(Flow[dict[str, Any]]):
        @start()
        def ask(self) -> Any:
            places.append(here())
            return llm.call("Ask it. " + LONG)

        @listen(ask)
        def work(self) -> Any:
            team = crew(agent("keeper", llm))
            answer = team.kickoff()
            places.append(here())  # the crew is over, the method is not
            assert service.flush(SLOW_S)
            run = service._ask("GET", f"/v1/runs/{watched.owner.run}")
            states.append(({row["name"]: row["steps_to_next_use"] for row in run["nodes"]}, run["running"]))
            return answer

        @listen(work)
        def alone(self) -> Any:
            return agent("single", llm).kickoff("Say it.")

    with watch(Research(), service, session="flow") as watched:
        Research().kickoff()
    assert states == [({"ask": "never", "work": 0, "alone": 1}, ["work"])]
    assert [(each["node"], each["agent"]) for each in places] == [("ask", "ask"), ("work", "work")]
    assert [who for who, _ in engine.found] == ["ask", "keeper", "single"]
    assert service.flush(SLOW_S) and once.counts == {}
    assert {row["agent"] for row in owners(served.service, session="flow")} == {"ask", "keeper", "single"}


def test_streams_and_several_kickoffs_of_one_run(served: Stack) -> None:
    service, streamed = kvpolicy.Service(served.service), []

    class Streamed(Engine):
        def on_inbound(self, message: httpx.Response) -> httpx.Response:
            streamed.append((here() or {})["agent"])
            return message

    told = {"base_url": f"{served.service}/v1", "api_key": "none", "interceptor": Streamed()}
    llm = kvpolicy.annotate(LLM(model="sim", provider="openai", stream=True, **told))
    team = crew(agent("{name}  of one\n", llm))
    with watch(team, service, session="streams") as run:
        answers = team.kickoff_for_each([{"name": "A"}, {"name": "B"}])
    assert [answer.raw for answer in answers] == ["fine", "fine"]
    assert len(streamed) == 2 and service.flush(SLOW_S) and once.counts == {}
    assert {(row["run"], row["phase"]) for row in owners(served.service, session="streams")} == {
        (run.owner.run, "ended")
    }


def test_the_page_s_example(served: Stack) -> None:
    assert example("crewai", served.service)["answer"].raw
    assert {row["agent"] for row in owners(served.service, session="s1")} == {"planner", "writer"}
