"""LlamaIndex agents, the real package: handoffs move a run, tools pause it, and who it is decides what is found."""

from __future__ import annotations

import asyncio

import pytest
from llama_index.core.agent.workflow import AgentOutput, AgentWorkflow
from workflows import Workflow, step
from workflows.events import StartEvent, StopEvent

import kvpolicy
from kvpolicy.adapters.frameworks.llama_index import watch
from tests.frameworks.conftest import Stack
from tests.frameworks.llama_flows import agent, cached_of, model, nothing_is_left, phases, rows_of, run, served
from tests.frameworks.scenes import LONG, asks_for, flood, owners

__all__ = ["nothing_is_left", "served"]


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])
def test_a_handoff_moves_the_run_and_a_tool_pauses_it(served: Stack, streaming: bool) -> None:
    service, session, seen = kvpolicy.Service(served.service), f"hand-{streaming}", []

    async def grep(q: str) -> str:
        """Find a word."""
        assert await asyncio.to_thread(service.flush, 30)
        seen.extend(phases(served, session, 2))
        name = kvpolicy.current_run().owner.run  # type: ignore[union-attr]
        seen.append(await asyncio.to_thread(service._ask, "GET", f"/v1/runs/{name}"))
        return "found"

    handing = asks_for("handoff", '{"to_agent": "writer", "reason": "It writes."}', call="c1")
    planner = agent("planner", model(served, handing), can_handoff_to=["writer"], streaming=streaming)
    asking = model(served, asks_for("grep", '{"q": "x"}', call="c2"))
    writer = agent("writer", asking, tools=[grep], can_handoff_to=[], streaming=streaming)
    team = AgentWorkflow(agents=[planner, writer], root_agent="planner", timeout=60)

    async def main() -> list[AgentOutput]:
        handler = watch(team, service, session=session).run(user_msg=f"{streaming} {LONG}", run_id=f"run-{streaming}")
        outputs = [event async for event in handler.stream_events() if isinstance(event, AgentOutput)]
        await handler
        return outputs

    outputs = asyncio.run(main())
    assert [output.current_agent_name for output in outputs] == ["planner", "writer", "writer"]
    *rows, state = seen
    assert set(rows) >= {("writer", "tool_pause")} and ("planner", "tool_pause") not in rows, rows
    assert (state["workflow"], state["running"]) == ("planner-handoffs", ["writer"])
    steps = {row["name"]: row["steps_to_next_use"] for row in state["nodes"]}
    assert steps == {"planner": "never", "writer": 0}
    assert service.flush(30) and service.counts.get("refused", 0) == 0
    assert service.counts["sent"] == 10  # a run, two agents, the handoff and the tool, each begun and ended
    assert phases(served, session, 2) == {("planner", "ended"), ("writer", "ended")}
    assert {row["run"] for row in owners(served.service, session=session)} == {f"run-{streaming}"}
    assert cached_of(outputs[-1]) > 100


def test_who_the_agent_is_decides_what_is_found_again(served: Stack) -> None:
    service = kvpolicy.Service(served.service)

    async def main() -> list[int]:
        llm = model(served)
        agents = [watch(agent(n, llm, streaming=False), service, session="found") for n in ("keeper", "passer")]
        for one in (*agents, *agents):
            await one.run(user_msg=f"{one.name} {LONG}")
        await asyncio.to_thread(flood, served.service)
        return [cached_of(await one.run(user_msg=f"{one.name} {LONG}")) for one in reversed(agents)]

    passed, kept = asyncio.run(main())
    assert passed < kept and kept > 100, (passed, kept)


def test_agents_in_the_steps_of_a_workflow_call_as_the_step_and_their_tools_pause_it(served: Stack) -> None:
    service, seen = kvpolicy.Service(served.service), []

    def grep(q: str) -> str:
        """Find a word."""
        assert service.flush(30)
        seen.extend(phases(served, "inner"))
        return "found"

    inner = agent("helper", model(served, asks_for("grep", '{"q": "x"}', call="c3")), tools=[grep], streaming=False)

    class Flow(Workflow):
        @step
        async def research(self, ev: StartEvent) -> StopEvent:
            return StopEvent(result=str(await inner.run(user_msg=LONG)))

    assert run(watch(Flow(timeout=60), service, session="inner"))
    assert service.flush(30) and seen == [("research", "tool_pause")]
    assert phases(served, "inner") == {("research", "ended")}
    assert service.counts["sent"] == 6


def test_a_watched_workflow_in_a_step_is_a_run_of_its_own_in_the_same_session(served: Stack) -> None:
    service, llm = kvpolicy.Service(served.service), model(served)
    inner = watch(agent("helper", llm, streaming=False), service)

    class Flow(Workflow):
        @step
        async def research(self, ev: StartEvent) -> StopEvent:
            await llm.acomplete("before")
            await inner.run(user_msg=LONG)
            await llm.acomplete("after")
            return StopEvent(result=kvpolicy.headers()["x-kvp-context"])

    assert 'node="research"' in run(watch(Flow(timeout=60), service, session="outer"))
    rows = rows_of(served, "outer", 2)
    assert {row["agent"] for row in rows} == {"research", "helper"} and len({row["run"] for row in rows}) == 2
