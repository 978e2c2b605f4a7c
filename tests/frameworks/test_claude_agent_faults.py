"""Bad cases with the Claude Agent SDK: the application never notices."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk import AgentDefinition, create_sdk_mcp_server, tool

import kvpolicy
from kvpolicy.adapters.frameworks.claude_agent import watch
from kvpolicy.client import once
from kvpolicy.runs import Run
from tests.frameworks.claude_code import Between, answered, calls_tool
from tests.frameworks.claude_flows import SLOW_S, ask, options, served, through_all, way
from tests.frameworks.conftest import Stack
from tests.frameworks.scenes import owners

__all__ = ["served", "way"]


def test_a_task_that_is_cancelled_in_a_tool(served: Stack, way: Between, tmp_path: Path) -> None:
    service = kvpolicy.Service(way.url)
    way.say = lambda body, agent: "fine" if "slow" in answered(body) else calls_tool("slow", "mcp__ours__look")

    async def main() -> None:
        inside = asyncio.Event()

        @tool("look", "Looks.", {})
        async def look(given: dict[str, Any]) -> dict[str, Any]:
            inside.set()
            await asyncio.sleep(60)
            return {"content": []}

        chosen = options(tmp_path, mcp_servers={"ours": create_sdk_mcp_server("ours", tools=[look])})

        async def run() -> None:
            async with watch(chosen, service, session="cancelled") as watched:
                await ask("Say it.", watched)

        task = asyncio.create_task(run())
        await asyncio.wait_for(inside.wait(), 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert service.flush(SLOW_S) and once.counts == {}
    ends: list[set[str]] = [{"ended"}, {"ended", "idle"}, {"idle"}]
    for _ in range(100):  # a Claude Code that is being ended may ask once more: that is idle when it is answered
        phases = {row["phase"] for row in owners(served.service, session="cancelled")}
        if phases in ends:
            break
        time.sleep(0.1)
    assert phases in ends


def test_what_fails_on_our_side_is_said_once(way: Between, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = kvpolicy.Service(way.url)
    way.say = through_all("helper")
    heard = Run.event

    def fails(self: Run, event: str, **facts: Any) -> Any:
        return heard(self, event, **facts) if event.startswith("workflow") else 1 / 0

    monkeypatch.setattr(Run, "event", fails)
    monkeypatch.setattr("kvpolicy.adapters.frameworks.quiet.version", lambda package: "9.0.0")
    watching = watch(options(tmp_path, "helper"), service)

    async def main() -> list[tuple[str | None, int]]:
        async with watching as watched:
            return await ask("Say it.", watched)

    assert len(asyncio.run(main())) == 3
    watching.__exit__(None, None, None)  # closed twice
    said = {key for key, count in once.counts.items() if count}
    assert {"version claude-agent-sdk", "closed workflow_end"} < said
    assert once.counts["claude_agent._before_tool"] == once.counts["claude_agent._agent_begins"] == 1


def test_agents_that_are_added_meanwhile(served: Stack, way: Between, tmp_path: Path) -> None:
    service, chosen = kvpolicy.Service(way.url), options(tmp_path, "helper")
    way.say = through_all("helper", "late")

    async def main() -> list[tuple[str | None, int]]:
        async with watch(chosen, service, session="late") as watched:
            assert watched.agents is not None
            watched.agents["late"] = AgentDefinition(description="Late.", prompt="late")
            return await ask("Say it.", watched)

    assert len(asyncio.run(main())) == 5
    assert service.flush(SLOW_S) and once.counts == {}
    assert len({row["agent"] for row in owners(served.service, session="late")}) == 3


def test_without_a_service_everything_goes_on(served: Stack, way: Between, tmp_path: Path) -> None:
    way.say = through_all("helper")
    chosen = options(tmp_path, "helper", env={"ANTHROPIC_BASE_URL": way.url})  # an address of the caller's own stays

    async def main() -> list[tuple[str | None, int]]:
        async with watch(chosen, kvpolicy.Service("http://127.0.0.1:9")) as watched:
            return await ask("Say it.", watched)

    assert len(asyncio.run(main())) == 3
