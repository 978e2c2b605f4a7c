"""`kvpolicy.Service`: events arrive in order and decide, graphs are told once, and whatever breaks, nobody notices."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Any

import openai
import pytest

import kvpolicy
from kvpolicy.client import once
from tests.client.conftest import Stack

POLICY = """
on tool_call until tool_result { turn { retention: hold 60s } }
turn when steps_to_next_use() else 9 <= 1 { priority: 80 }
"""
GRAPH = {"name": "pair", "nodes": ["planner", "writer"], "edges": [["planner", "writer"]]}


@pytest.fixture(scope="module")
def served(stack: Callable[..., Stack]) -> Stack:
    return stack(POLICY)


def call(served: Stack, words: str) -> None:
    client = kvpolicy.annotate(openai.OpenAI(base_url=f"{served.service}/v1", api_key="none"))
    messages: Any = [{"role": "user", "content": words}]
    client.chat.completions.create(model="sim", messages=messages, max_tokens=1)


def phase(service: kvpolicy.Service, session: str) -> list[str]:
    assert service.flush()
    return [row["phase"] for row in service.owners(session=session)]


def test_a_tool_s_pause_begins_and_ends_when_it_does(served: Stack) -> None:
    service = kvpolicy.Service(served.service)
    with service.run(session="tools") as run:
        with run.step("writer"):
            call(served, "one two three")
            with kvpolicy.tool("grep", eta=4.5):
                assert phase(service, "tools") == ["tool_pause"]
            assert phase(service, "tools") == ["running"]
        assert phase(service, "tools") == ["idle"]
    assert phase(service, "tools") == ["ended"]
    assert service.counts["sent"] == 6 and once.counts == {}


def test_a_graph_is_told_once_and_again_when_it_changes(served: Stack) -> None:
    service = kvpolicy.Service(served.service)
    with service.run(workflow=GRAPH, session="g1", run="g1") as run, run.step("planner"):
        call(served, "four five six")
        service.flush()
        told = service._ask("GET", "/v1/runs/g1")
        assert (told["workflow"], told["running"]) == ("pair", ["planner"])
        assert {row["name"]: row["steps_to_next_use"] for row in told["nodes"]} == {"planner": 0, "writer": 1}
    again = {**GRAPH, "nodes": ["planner", "critic", "writer"], "edges": [["planner", "critic"], ["critic", "writer"]]}
    with service.run(workflow=again, session="g2", run="g2") as run, run.step("planner"):
        call(served, "seven eight nine")
        service.flush()
        told = service._ask("GET", "/v1/runs/g2")
        assert {row["name"]: row["steps_to_next_use"] for row in told["nodes"]}["writer"] == 2


def test_plans_and_explanations(served: Stack) -> None:
    service = kvpolicy.Service(served.service + "/v1")
    made = service.plan({"id": "r", "owner": {"session": "p"}, "tokens": 64, "block_size": 16, "spans": []})
    assert made["policy"]["mode"] == "enforce"
    with pytest.raises(kvpolicy.InputFault, match="404 nothing is remembered of a request"):
        service.explain("nobody")
    with pytest.raises(kvpolicy.InputFault, match="tokens"):
        service.plan({"id": "r"})


def test_async(served: Stack) -> None:
    async def main() -> None:
        service = kvpolicy.AsyncService(served.service)
        run = await service.run(GRAPH, session="async")
        async with run, run.step("planner"), kvpolicy.tool("grep"):
            await service.event("compact", session="async")
        assert await service.flush()
        assert service.service.counts["sent"] == 7
        assert (await service.plan({"id": "r", "owner": {}, "tokens": 16, "block_size": 16}))["directives"] == []
        await service.close()

    asyncio.run(main())


# --- what breaks -----------------------------------------------------------------------------------------------------


def test_a_service_that_is_not_there_costs_nothing_but_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    service = kvpolicy.Service("http://127.0.0.1:9")
    with caplog.at_level(logging.WARNING, "kvpolicy"):
        for number in range(3):
            with service.run(workflow=GRAPH, session=f"s{number}") as run, run.step("planner"), run.tool("grep"):
                pass
        service.flush()
    assert len([r for r in caplog.records if "events are not delivered" in r.message]) == 1
    assert len([r for r in caplog.records if "graph was not told" in r.message]) == 1
    assert service.counts["failed"] + service.counts["dropped"] == 18
    with pytest.raises(kvpolicy.InputFault, match="Connection refused"):
        service.plan({"id": "r"})


def test_a_service_that_hangs_holds_nobody() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        service = kvpolicy.Service(f"http://127.0.0.1:{silent.getsockname()[1]}")
        with service.run(session="s") as run:
            for _ in range(200):
                with run.tool("grep"):
                    pass
        assert service.counts == {}  # all of it was told before the first exchange was given up
        assert not service.flush(0.01)


def test_a_stretch_closed_twice_or_opened_twice_tells_once(served: Stack, caplog: pytest.LogCaptureFixture) -> None:
    service = kvpolicy.Service(served.service)
    with caplog.at_level(logging.WARNING, "kvpolicy"):
        run = service.run(session="twice")
        run.__enter__()
        with run:
            pass
        for _ in range(3):
            run.__exit__(None, None, None)
        step = run.step("writer")
        step.__exit__(None, None, None)
    service.flush()
    assert service.counts["sent"] == 2
    assert sorted(once.counts.values()) == [1, 1, 3]
    assert len(caplog.records) == 3
    with run:  # and may be used again
        assert kvpolicy.current_run() is run
    assert kvpolicy.current_run() is None and kvpolicy.headers() == {}


def test_a_step_that_raises_and_a_task_cancelled_in_a_tool(served: Stack) -> None:
    service = kvpolicy.Service(served.service)
    with pytest.raises(ZeroDivisionError), service.run(session="raises") as run, run.step("writer"):
        call(served, "ten eleven")
        raise ZeroDivisionError
    assert phase(service, "raises") == ["ended"]

    async def main() -> None:
        inside = asyncio.Event()

        async def work() -> None:
            async with service.run(session="cancelled") as run, run.step("writer"):
                await asyncio.to_thread(call, served, "twelve thirteen")
                async with run.tool("sleep"):
                    inside.set()
                    await asyncio.sleep(60)

        task = asyncio.create_task(work())
        await inside.wait()
        assert await asyncio.to_thread(phase, service, "cancelled") == ["tool_pause"]
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(phase, service, "cancelled") == ["ended"]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: kvpolicy.Service("127.0.0.1:80"), "such as http://127.0.0.1:8700, not '127.0.0.1:80'"),
        (lambda: kvpolicy.Service("http://x").event("tool_cal"), "did you mean `tool_call`"),
        (lambda: kvpolicy.Service("http://x").event("tool_call", sesion="s"), "did you mean `session`"),
        (lambda: kvpolicy.Service("http://x").run(workflow=3), "a workflow is"),
        (lambda: kvpolicy.Service("http://x").run().request([1]), "a run of a service takes no requests"),
    ],
)
def test_what_cannot_be_meant_is_said_at_once(act: Any, message: str) -> None:
    with pytest.raises(kvpolicy.InputFault, match=message):
        act()


def test_a_service_loads_no_engine_and_none_of_the_heavy_packages() -> None:
    import subprocess
    import sys

    program = (
        "import sys, kvpolicy\nservice = kvpolicy.Service('http://127.0.0.1:9')\n"
        "with service.run(session='s') as run, run.step('a'): pass\n"
        "heavy = ('lark', 'pydantic', 'networkx', 'fastapi', 'redis', 'kvpolicy.steering')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
