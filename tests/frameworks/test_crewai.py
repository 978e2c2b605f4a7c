"""CrewAI, the real package: crews, flows, delegation and tools as the service sees them, and what is cached."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

# Before CrewAI is imported: nothing of its own goes to the network.
os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "OTEL_SDK_DISABLED": "true", "CREWAI_TRACING_ENABLED": "false"}

import httpx
import pytest
from crewai import LLM, Agent, Crew, Flow, Process, Task
from crewai.flow.flow import listen, start
from crewai.hooks import clear_all_hooks
from crewai.llms.hooks.base import BaseInterceptor
from crewai.llms.providers.openai.completion import OpenAICompletion
from crewai.tools import tool

import kvpolicy
from kvpolicy.adapters.frameworks import crewai as adapter
from kvpolicy.adapters.frameworks.crewai import here, watch
from kvpolicy.client import once
from tests.frameworks.conftest import Stack
from tests.frameworks.scenes import KEEPER, LONG, all_owners, asks_for, example, flood, owners

SLOW_S = 30.0  # no events are given up on slow cores


@pytest.fixture(scope="module")
def served(stack: Callable[..., Stack]) -> Stack:
    return stack(KEEPER + "on tool_call until tool_result { turn { retention: hold 60s } }\n")


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    asked: list[Any] = []
    look_up = socket.getaddrinfo

    def noted(host: Any, *args: Any, **named: Any) -> Any:
        asked.extend([host] if host not in ("127.0.0.1", b"127.0.0.1") else [])
        return look_up(host, *args, **named)

    monkeypatch.setattr(socket, "getaddrinfo", noted)
    once.counts.clear()
    yield
    assert asked == []  # nothing goes to the network
    assert here() is None  # whoever asks next is not of a crew that is over


class Engine(BaseInterceptor[httpx.Request, httpx.Response]):
    """What the simulated engine is to answer; and what it found cached, with whom the call said it was of."""

    def __init__(self, *replies: dict[str, Any]) -> None:
        self.replies = list(replies)
        self.found: list[tuple[Any, int]] = []

    def on_outbound(self, message: httpx.Request) -> httpx.Request:
        reply = self.replies.pop(0) if self.replies else {"sim_reply": {"content": "fine"}}
        headers = {name: value for name, value in message.headers.items() if name != "content-length"}
        return httpx.Request(
            message.method, message.url, headers=headers, json={**json.loads(message.content), **reply}
        )

    def on_inbound(self, message: httpx.Response) -> httpx.Response:
        message.read()
        self._count(message)
        return message

    async def aon_outbound(self, message: httpx.Request) -> httpx.Request:
        return self.on_outbound(message)

    async def aon_inbound(self, message: httpx.Response) -> httpx.Response:
        await message.aread()
        self._count(message)
        return message

    def _count(self, message: httpx.Response) -> None:
        place = here() or {}
        self.found.append((place.get("agent"), message.json()["usage"]["prompt_tokens_details"]["cached_tokens"]))


def model(served: Stack, engine: Engine) -> Any:
    told = {"base_url": f"{served.service}/v1", "api_key": "none", "interceptor": engine}
    return kvpolicy.annotate(LLM(model="sim", provider="openai", **told))


def agent(role: str, llm: Any, **more: Any) -> Agent:
    return Agent(role=role, goal="Be short.", backstory=f"{role} {LONG}", llm=llm, max_retry_limit=0, **more)


def crew(*agents: Agent, **more: Any) -> Crew:
    return Crew(agents=list(agents), tasks=[task(each) for each in agents], **more)


def task(of: Agent | None, **more: Any) -> Task:
    return Task(description="Say it.", expected_output="A word.", agent=of, **more)


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
        {"a": "never", "b": 1, "c": 2, "__end__": 3},
        {"a": "never", "b": "never", "c": 1, "__end__": 2},
        {"a": "never", "b": "never", "c": "never", "__end__": 1},
    ]
    assert [running for _, running in states] == [[], [], []] and once.counts == {}


def test_tools_pause_and_coworkers_are_steps_of_the_same_run(served: Stack) -> None:
    service, phases, running = kvpolicy.Service(served.service), [], []

    @tool("grep")
    def grep(q: str) -> str:
        """Find a word."""
        assert service.flush(SLOW_S)
        phases.extend((row["agent"], row["phase"]) for row in owners(served.service, session="tools"))
        running.extend(service._ask("GET", f"/v1/runs/{run.owner.run}")["running"])
        return "found"

    work = json.dumps({"task": "Find it.", "context": "None.", "coworker": "helper"})
    engine = Engine(asks_for("delegate_work_to_coworker", work, call="c1"), asks_for("grep", '{"q": "x"}', call="c2"))
    llm = model(served, engine)
    boss, helper = agent("boss", llm, allow_delegation=True), agent("helper", llm, tools=[grep])
    team = Crew(agents=[helper], tasks=[task(None)], manager_agent=boss, process=Process.hierarchical)
    with watch(team, service, session="tools") as run:
        team.kickoff()
    assert phases == [("boss", "tool_pause"), ("helper", "tool_pause")]
    assert sorted(running) == ["boss", "helper"]
    assert [who for who, _ in engine.found] == ["boss", "helper", "helper", "boss"]
    assert engine.found[2][1] > 100 and engine.found[3][1] > 100  # both go on where they paused
    assert service.flush(SLOW_S) and once.counts == {}
    rows = owners(served.service, session="tools")
    assert {row["phase"] for row in rows} == {"ended"} and len({row["run"] for row in rows}) == 1


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
    assert states == [({"ask": "never", "work": 0, "alone": 1, "__end__": 2}, ["work"])]
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


def test_tools_that_are_asked_for_in_words(served: Stack) -> None:
    service, phases = kvpolicy.Service(served.service), []

    @tool("grep")
    def grep(q: str) -> str:
        """Find a word."""
        assert service.flush(SLOW_S)
        phases.extend(row["phase"] for row in owners(served.service, session="words"))
        return "found"

    class Wordy(OpenAICompletion):
        def supports_function_calling(self) -> bool:
            return False

    words = 'Thought: I look.\nAction: grep\nAction Input: {"q": "x"}\n'
    engine = Engine({"sim_reply": words}, {"sim_reply": "Thought: I now know the final answer\nFinal Answer: fine"})
    told = {"base_url": f"{served.service}/v1", "api_key": "none", "interceptor": engine}
    team = crew(agent("wordy", kvpolicy.annotate(Wordy(model="sim", **told)), tools=[grep]))
    with watch(team, service, session="words"):
        assert team.kickoff().raw == "fine"
    assert phases == ["tool_pause"] and engine.found[1][1] > 100
    assert service.flush(SLOW_S) and once.counts == {}
    assert [row["phase"] for row in owners(served.service, session="words")] == ["ended"]


# --- bad cases: the application never notices ------------------------------------------------------------------------


def test_what_a_tool_or_a_step_raises(served: Stack) -> None:
    service = kvpolicy.Service(served.service)

    @tool("broken")
    def broken() -> str:
        """Break."""
        raise ZeroDivisionError("mine")

    engine = Engine(asks_for("broken"))
    team = crew(agent("raiser", model(served, engine), tools=[broken]))
    with watch(team, service, session="raises-tool"):
        assert team.kickoff().raw == "fine"  # CrewAI tells the model
    assert engine.found[-1][1] > 100

    def refuse(output: Any) -> None:
        raise ZeroDivisionError("mine")

    one = agent("raiser", model(served, Engine()))
    team = Crew(agents=[one], tasks=[task(one, callback=refuse)])
    with pytest.raises(ZeroDivisionError, match="mine"), watch(team, service, session="raises-step"):
        team.kickoff()

    assert service.flush(SLOW_S) and once.counts == {}
    for name in ("tool", "step"):
        assert [row["phase"] for row in owners(served.service, session=f"raises-{name}")] == ["ended"], name


def test_a_task_that_is_cancelled_in_a_tool(served: Stack) -> None:
    service, inside, go, gone = kvpolicy.Service(served.service), Event(), Event(), Event()

    @tool("sleep")
    def sleep() -> str:
        """Wait."""
        inside.set()
        assert go.wait(60)
        gone.set()
        return "late"

    team = crew(agent("sleeper", model(served, Engine(asks_for("sleep"))), tools=[sleep]))

    async def run() -> None:
        with watch(team, service, session="cancelled"):
            await team.akickoff()

    async def main() -> None:
        running = asyncio.create_task(run())
        assert await asyncio.to_thread(inside.wait, 60)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert await asyncio.to_thread(service.flush, SLOW_S)
        assert [row["phase"] for row in owners(served.service, session="cancelled")] == ["ended"]
        go.set()  # the tool's thread cannot be cancelled: what it tells is late
        assert await asyncio.to_thread(gone.wait, 60)

    asyncio.run(main())
    assert service.flush(SLOW_S) and once.counts == {}
    assert [row["phase"] for row in owners(served.service, session="cancelled")] == ["ended"]


def test_a_run_that_is_closed_twice_and_a_crew_that_changes(served: Stack) -> None:
    service, engine = kvpolicy.Service(served.service), Engine()
    llm = model(served, engine)
    team = crew(agent("a", llm))
    run = watch(team, service, session="changed")
    with run:
        late = agent("late", llm)
        team.agents.append(late)
        team.tasks.append(task(late))
        assert team.kickoff().raw == "fine"
    run.__exit__(None, None, None)
    assert [who for who, _ in engine.found] == ["a", "late"]
    assert sum(once.counts.values()) == 1
    assert service.flush(SLOW_S)
    assert {row["phase"] for row in owners(served.service, session="changed")} == {"ended"}


def test_what_cannot_be_read_or_is_of_another_version(served: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    service, engine = kvpolicy.Service(served.service), Engine()
    monkeypatch.setattr("kvpolicy.adapters.frameworks.quiet.version", lambda package: "3.0.0")
    monkeypatch.setattr(adapter, "name_of", lambda agent: 1 / 0)
    team = crew(agent("a", model(served, engine)))
    for _ in range(2):
        with watch(object(), service, session="unread"):
            assert team.kickoff().raw == "fine"
    assert [who for who, _ in engine.found] == [None, None]
    assert once.counts["version crewai"] == 2 and once.counts["crewai._before_step"] == 2


def test_hooks_that_were_cleared_come_back(served: Stack) -> None:
    service, engine = kvpolicy.Service(served.service), Engine()
    clear_all_hooks()
    team = crew(agent("a", model(served, engine)))
    team.kickoff()
    with watch(team, service, session="cleared"):
        team.kickoff()
    assert [who for who, _ in engine.found] == [None, "a"]


def test_without_a_service_everything_goes_on(served: Stack) -> None:
    team = crew(agent("alone", model(served, Engine())))
    with watch(team, kvpolicy.Service("http://127.0.0.1:9")):
        assert team.kickoff().raw == "fine"


def test_the_page_s_example(served: Stack) -> None:
    assert example("crewai", served.service)["answer"].raw
    assert {row["agent"] for row in owners(served.service, session="s1")} == {"planner", "writer"}
