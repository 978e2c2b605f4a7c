"""CrewAI's tools, the real package: pauses, coworkers that a tool brings to work, tools that fail or are cancelled."""

from __future__ import annotations

import asyncio
import json
from threading import Event
from typing import Any

import pytest
from crewai import Crew, Process
from crewai.llms.providers.openai.completion import OpenAICompletion
from crewai.tools import tool

import kvpolicy
from kvpolicy.adapters.frameworks.crewai import watch
from kvpolicy.client import once
from tests.frameworks.conftest import Stack
from tests.frameworks.crewai_crews import SLOW_S, Engine, agent, crew, fresh, model, served, task
from tests.frameworks.scenes import asks_for, owners

__all__ = ["fresh", "served"]


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
