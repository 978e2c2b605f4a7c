"""The Claude Agent SDK with the Claude Code that it brings: sub-agents, tools, compaction, and what is cached."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from claude_agent_sdk import (
    AssistantMessage,
    ClaudeSDKClient,
    HookMatcher,
    ResultMessage,
    create_sdk_mcp_server,
    query,
    tool,
)

import kvpolicy
from kvpolicy.adapters.frameworks.claude_agent import watch
from kvpolicy.client import once
from tests.frameworks.claude_code import Between, answered, at_home, calls_tool
from tests.frameworks.claude_flows import SLOW_S, ask, options, patient, served, through_all, way
from tests.frameworks.conftest import Stack
from tests.frameworks.scenes import LONG, example, owners
from tests.simulated.running import running

__all__ = ["served", "way"]


def flood(served: Stack) -> None:
    """Others use the engine: more blocks than it has."""
    for number in range(14):
        words = f"{number} other words that nobody needs again " * 160
        body = {"model": "sim", "messages": [{"role": "user", "content": words}], "max_tokens": 1}
        httpx.post(f"{served.service}/v1/chat/completions", json=body, timeout=30).raise_for_status()


def test_which_sub_agent_it_is_decides_what_is_found_again(served: Stack, way: Between, tmp_path: Path) -> None:
    service, chosen = kvpolicy.Service(way.url), options(tmp_path, "keeper", "passer")
    way.say = through_all("keeper", "passer")

    async def main() -> list[list[tuple[str | None, int]]]:
        rounds = []
        for number in range(3):
            if number == 2:
                await asyncio.to_thread(flood, served)
            async with watch(chosen, service, session=f"found-{number}") as watched:
                rounds.append(await ask("Say it.", watched))
        return rounds

    first, second, third = asyncio.run(main())
    of_whom = [None, "for-keeper", None, "for-passer", None]
    assert [[call for call, _ in each] for each in (first, second, third)] == [of_whom] * 3
    assert first[0][1] == 0 and first[2][1] > 1000  # the main agent goes on where it paused
    heads = [dict(each[1:4:2]) for each in (first, second, third)]
    assert max(heads[0].values()) < 200
    assert heads[1]["for-keeper"] > 500 and heads[1]["for-passer"] > 500  # there is room for both
    assert heads[2]["for-keeper"] > 500 and heads[2]["for-passer"] < 200, heads
    assert service.flush(SLOW_S) and once.counts == {}
    rows = owners(served.service, session="found-2")
    assert len({row["agent"] for row in rows}) == 3 and {row["phase"] for row in rows} == {"ended"}


def test_prompts_of_several_sessions_begin_alike(served: Stack, way: Between, tmp_path: Path) -> None:
    service = kvpolicy.Service(way.url)

    async def first_call(prompt: str, **env: str) -> int:
        async with watch(options(tmp_path, system_prompt=f"Alike. {LONG * 10}", env=env), service) as watched:
            return (await ask(prompt, watched))[0][1]

    async def main() -> list[int]:
        own = {"CLAUDE_CODE_ATTRIBUTION_HEADER": "1"}  # what a caller says stays
        return [await first_call("One."), await first_call("Two."), await first_call("Three.", **own)]

    _, found, own = asyncio.run(main())
    assert found > own + 1500  # with it tools are found, and nothing behind them
    assert "x-anthropic-billing-header" in str(way.asked[-1][1]["system"])
    assert "x-anthropic-billing-header" not in str(way.asked[0][1]["system"])


def test_tools_pause_and_sub_agents_are_steps(served: Stack, way: Between, tmp_path: Path) -> None:
    service, seen = kvpolicy.Service(way.url), []

    @tool("look", "Looks.", {})
    async def look(given: dict[str, Any]) -> dict[str, Any]:
        assert await asyncio.to_thread(service.flush, SLOW_S)
        rows = {row["agent"]: row["phase"] for row in owners(served.service, session="tools")}
        run = service._ask("GET", f"/v1/runs/{watching.run.owner.run}")
        seen.append((rows, sorted(run["running"]), {row["name"]: row["steps_to_next_use"] for row in run["nodes"]}))
        if len(seen) == 2:
            raise ZeroDivisionError("mine")
        return {"content": [{"type": "text", "text": "seen"}]}

    def say(body: Mapping[str, Any], agent: str | None) -> Any:
        done, mine = answered(body), "in-helper" if agent else "in-main"
        if agent is None and "for-helper" not in done:
            return calls_tool("for-helper", "Agent", description="x", prompt="Do it.", subagent_type="helper")
        return "fine" if mine in done else calls_tool(mine, "mcp__ours__look")

    way.say = say
    servers = {"ours": create_sdk_mcp_server("ours", tools=[look])}
    theirs: list[str] = []

    async def own(given: Any, call: Any, context: Any) -> Any:
        theirs.append(given["hook_event_name"])
        return {}

    hooks: Any = {"PreToolUse": [HookMatcher(hooks=[own])]}
    chosen = options(tmp_path, "helper", "other", mcp_servers=servers, hooks=hooks)
    watching = watch(chosen, service, session="tools")

    async def main() -> list[tuple[str | None, int]]:
        async with watching as watched:
            return await ask("Say it.", watched)

    found = asyncio.run(main())
    assert [call for call, _ in found] == [None, "for-helper", "for-helper", None, None]
    assert all(cached > 500 for _, cached in found[2:]), found
    helper = next(agent for agent, _ in way.asked if agent)
    assert seen[0][0] == {None: "tool_pause", helper: "tool_pause"}
    assert seen[0][1:] == (["helper", "main"], {"main": 0, "helper": 0, "other": 1})
    assert seen[1][0] == {None: "tool_pause", helper: "idle"}
    assert seen[1][1:] == (["main"], {"main": 0, "helper": 1, "other": 1})
    assert theirs == ["PreToolUse"] * 3 and chosen.hooks == hooks and "ANTHROPIC_BASE_URL" not in chosen.env
    assert service.flush(SLOW_S) and once.counts == {}
    assert {row["phase"] for row in owners(served.service, session="tools")} == {"ended"}


def test_a_session_is_claude_code_s_own_and_goes_on_when_it_is_resumed(
    served: Stack, way: Between, tmp_path: Path
) -> None:
    service = kvpolicy.Service(way.url)

    async def turn(prompt: str, **more: Any) -> tuple[str, int]:
        chosen = options(tmp_path, env={"ANTHROPIC_BASE_URL": f"{way.url}/"}, **more)  # the service's own: as without
        async with watch(chosen, service) as watched:
            async for message in query(prompt=prompt, options=watched):
                if isinstance(message, AssistantMessage):
                    cached = (message.usage or {})["cache_read_input_tokens"]
                if isinstance(message, ResultMessage):
                    return message.session_id, cached
        raise AssertionError

    async def main() -> tuple[str, str, int]:
        name, _ = await turn(f"Once {LONG}")
        again, cached = await turn("Twice", resume=name)
        return name, again, cached

    name, again, cached = asyncio.run(main())
    assert name == again and cached > 1000
    assert service.flush(SLOW_S) and once.counts == {}
    rows = owners(served.service, session=name)
    assert len({row["run"] for row in rows}) == 2 and {row["phase"] for row in rows} == {"ended"}


def test_compaction_is_told_when_it_is_done(served: Stack, way: Between, tmp_path: Path) -> None:
    service = kvpolicy.Service(way.url)

    async def found_again(session: str, compact: bool) -> int:
        """What the engine has of a session's next prompt, when others have used it meanwhile."""
        chosen = options(tmp_path, system_prompt=f"{session} {LONG}")
        async with (
            watch(chosen, service, session=session) as watched,
            ClaudeSDKClient(watched) as client,
        ):
            for prompt in ("One.", "Two.", *(["/compact"] if compact else []), "Next."):
                if prompt == "Next.":
                    assert await asyncio.to_thread(service.flush, SLOW_S)
                    await asyncio.to_thread(flood, served)
                await client.query(prompt)
                async for message in client.receive_response():
                    if isinstance(message, AssistantMessage):
                        cached = (message.usage or {})["cache_read_input_tokens"]
        return cached

    way.say = lambda body, agent: "<summary>Short.</summary>"
    lost = asyncio.run(found_again("does-not", False))
    kept = asyncio.run(found_again("compacts", True))
    assert lost < 50 and kept > 500, (lost, kept)
    assert once.counts == {}


def test_runs_at_once_do_not_mix(served: Stack, way: Between, tmp_path: Path) -> None:
    service = kvpolicy.Service(way.url)
    way.say = through_all("helper")

    async def work(number: int) -> None:
        chosen = options(tmp_path, "helper", system_prompt=f"number {number}")
        async with watch(chosen, service, session=f"at-once-{number}") as watched:
            await ask("Say it.", watched)

    async def together() -> None:
        async with watch(options(tmp_path, "helper"), service) as watched:  # the same options, of two sessions
            await asyncio.gather(ask("Say it.", watched), ask("Say it.", watched))

    async def main() -> None:
        await asyncio.gather(*(work(number) for number in range(3)))
        before = {row["session"] for row in owners(served.service)}
        await together()
        fresh = [row for row in owners(served.service) if row["session"] not in before]
        assert len({row["session"] for row in fresh}) == 2 and len({row["run"] for row in fresh}) == 1

    asyncio.run(main())
    of = {agent for agent, _ in way.asked if agent}
    rows = all_owners_or_none(served.service, "at-once-", 6)
    assert [session for session, _ in rows] == [f"at-once-{number}" for number in (0, 0, 1, 1, 2, 2)]
    assert {agent for _, agent in rows if agent} <= of and len({agent for _, agent in rows if agent}) == 3


def all_owners_or_none(service: str, start: str, count: int) -> list[tuple[str, str]]:
    """As `all_owners`, with main agents, which have no name."""
    rows = [row for row in owners(service) if row["session"].startswith(start)]
    assert len(rows) == count, rows
    return sorted((row["session"], row["agent"] or "") for row in rows)


def test_the_page_s_example(served: Stack, way: Between) -> None:
    way.say = lambda body, agent: "It rains."
    assert example("claude-agent", way.url)["answer"] == "It rains."
    assert [row["phase"] for row in owners(served.service, session="s1")] == ["ended"]


def test_the_page_s_example_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Claude Code's own bodies, which ask for 32,000 tokens, and the engine's own answer; nothing stands between."""
    at_home(tmp_path, monkeypatch)
    patient(monkeypatch)
    with running("engine", "--blocks", "4096") as engine, running("serve", "--upstream", engine) as service:
        answer = example("claude-agent", service)["answer"]
        assert isinstance(answer, str) and len(answer.split()) == 15, answer
        (row,) = owners(service, session="s1")
        assert row["phase"] == "ended"
    assert "aclose" not in caplog.text + capfd.readouterr().err
