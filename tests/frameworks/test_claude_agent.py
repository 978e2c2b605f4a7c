"""The Claude Agent SDK with the Claude Code that it brings: sub-agents, tools, compaction, and what is cached."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from claude_agent_sdk import (
    AgentDefinition,
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    HookMatcher,
    ResultMessage,
    create_sdk_mcp_server,
    query,
    tool,
)

import kvpolicy
from kvpolicy.adapters.frameworks.claude_agent import ADDRESS, graph, watch
from kvpolicy.client import once
from kvpolicy.client.sending import exchange
from kvpolicy.runs import Run
from kvpolicy.workflow.graph import Graph
from kvpolicy.workflow.position import Position
from tests.frameworks.claude_code import Between, answered, at_home, between, calls_tool
from tests.frameworks.conftest import Stack
from tests.frameworks.scenes import LONG, example, owners
from tests.simulated.running import running

POLICY = """
any[node="keeper"] { priority: 90  ttl: 10min }
on tool_call until tool_result { turn { retention: hold 60s } }
on compact until session_end { any[node="main"] { priority: 90  ttl: 10min } }
"""

SLOW_S = 30.0


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Events change what an engine keeps, also between requests: over its control channel."""
    folder = tmp_path_factory.mktemp("served")
    channel = f"unix:{folder}/channel"
    (folder / "policy.kvp").write_text(POLICY)
    with running("engine", "--blocks", "900", "--decode-s", "0", "--channel", channel) as engine:
        (folder / "serve.toml").write_text(f'[[upstream]]\nurl = "{engine}"\nchannel = "{channel}"\n')
        told = ("--config", str(folder / "serve.toml"), "--policy", str(folder / "policy.kvp"), "--mode", "enforce")
        with running("serve", *told, log=folder / "service.log") as service:
            yield Stack(service, engine)


@pytest.fixture
def way(served: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Between]:
    at_home(tmp_path, monkeypatch)
    patient(monkeypatch)
    once.counts.clear()
    with between(served.service) as made:
        yield made


def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cores that start several Claude Codes are slow: nothing is given up for that."""

    def exchanged(method: str, url: str, document: object, key: str | None, within_s: float) -> Any:
        return exchange(method, url, document, key, SLOW_S)

    monkeypatch.setattr("kvpolicy.client.service.exchange", exchanged)
    monkeypatch.setattr("kvpolicy.adapters.frameworks.claude_agent._SOON_S", SLOW_S)


def options(folder: Path, *agents: str, **more: Any) -> ClaudeAgentOptions:
    told: dict[str, Any] = {
        "model": "sim",
        "cwd": folder,
        "setting_sources": [],
        "system_prompt": f"You lead. {LONG}",
        "tools": ["Agent", "Read", "Grep"],
        "forward_subagent_text": True,
        "allowed_tools": ["Agent", "mcp__ours__look"],
        "agents": {
            name: AgentDefinition(description="Works.", prompt=f"{name} {LONG}", tools=[own, "mcp__ours__look"])
            for name, own in zip(agents, ("Read", "Grep"), strict=False)  # their prompts begin with their tools
        },
    }
    return ClaudeAgentOptions(**{**told, **more})


async def ask(prompt: str, chosen: ClaudeAgentOptions) -> list[tuple[str | None, int]]:
    """For each answer the call that its sub-agent works for, and how much of its prompt the engine found cached."""
    found = []
    async for message in query(prompt=prompt, options=chosen):
        if isinstance(message, AssistantMessage):
            found.append((message.parent_tool_use_id, (message.usage or {})["cache_read_input_tokens"]))
        elif isinstance(message, ResultMessage):
            assert not message.is_error, message
    return found


def through_all(*names: str) -> Callable[[Mapping[str, Any], str | None], Any]:
    """The main agent asks for each sub-agent, one after the other."""

    def say(body: Mapping[str, Any], agent: str | None) -> Any:
        for name in () if agent else names:
            if f"for-{name}" not in answered(body):
                return calls_tool(f"for-{name}", "Agent", description="x", prompt="Do it.", subagent_type=name)
        return "fine"

    return say


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
    assert seen[0][1:] == (["helper", "main"], {"main": 0, "helper": 0, "other": 1, "__end__": 1})
    assert seen[1][0] == {None: "tool_pause", helper: "idle"}
    assert seen[1][1:] == (["main"], {"main": 0, "helper": 1, "other": 1, "__end__": 1})
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


# --- bad cases: the application never notices ------------------------------------------------------------------------


def test_a_task_that_is_cancelled_in_a_tool(served: Stack, way: Between, tmp_path: Path) -> None:
    service = kvpolicy.Service(way.url)
    way.say = lambda body, agent: calls_tool("slow", "mcp__ours__look")

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
    assert {row["phase"] for row in owners(served.service, session="cancelled")} == {"ended"}


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


def test_the_page_s_example(served: Stack, way: Between) -> None:
    way.say = lambda body, agent: "It rains."
    assert example("claude-agent", way.url)["answer"] == "It rains."
    assert [row["phase"] for row in owners(served.service, session="s1")] == ["ended"]


# --- graphs: distances counted by hand -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "steps"),
    [((), {"main": 0, "__end__": 1}), (("a", "b"), {"main": 0, "a": 1, "b": 1, "__end__": 1})],
)
def test_graphs(names: tuple[str, ...], steps: dict[str, int], tmp_path: Path) -> None:
    chosen = options(tmp_path, *names)
    assert Position(Graph.sound(graph(chosen))).all_steps() == steps
    assert kvpolicy.Engine(blocks=8).run(chosen).workflow == "claude-agent"  # found by its entry point


@pytest.mark.parametrize("name", ["main", "__end__"])
def test_a_sub_agent_named_as_a_node_of_ours_is_left_out_of_the_graph(name: str, tmp_path: Path) -> None:
    once.counts.clear()
    assert Position(Graph.sound(graph(options(tmp_path, name, "a")))).all_steps() == {"main": 0, "a": 1, "__end__": 1}
    assert once.counts == {f"agent {name}": 1}


def test_options_that_were_watched_before_are_another_run_s_now(tmp_path: Path) -> None:
    service, mine = kvpolicy.Service("http://127.0.0.1:9"), HookMatcher(hooks=[own_hook])
    first = watch(replace(options(tmp_path), hooks={"PreToolUse": [mine]}), service, session="A").options
    again = watch(first, service, session="B").options
    assert {name: len(each) for name, each in again.hooks.items()} == {n: len(h) for n, h in first.hooks.items()}
    assert again.hooks["PreToolUse"][0] is mine
    assert "A" in first.env[ADDRESS] and "B" in again.env[ADDRESS]
    assert again.env[ADDRESS].count("/kvp/") == 1
    elsewhere = replace(options(tmp_path), env={ADDRESS: "http://127.0.0.1:10"})
    assert watch(elsewhere, service).options.env[ADDRESS] == "http://127.0.0.1:10"


async def own_hook(given: Any, call: str | None, context: Any) -> dict[str, Any]:
    return {}


def test_the_service_s_key_is_the_calls_key_where_there_is_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = kvpolicy.Service("http://127.0.0.1:9", key="tenant")
    bare = replace(options(tmp_path), env={})
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    assert watch(bare, service).options.env["ANTHROPIC_API_KEY"] == "tenant"
    assert "ANTHROPIC_API_KEY" not in watch(bare, kvpolicy.Service("http://127.0.0.1:9")).options.env
    assert "ANTHROPIC_API_KEY" not in watch(replace(bare, env={ADDRESS: "http://other"}), service).options.env
    own = replace(bare, env={"ANTHROPIC_AUTH_TOKEN": "own"})
    assert "ANTHROPIC_API_KEY" not in watch(own, service).options.env
    monkeypatch.setenv("ANTHROPIC_API_KEY", "of the environment")
    assert "ANTHROPIC_API_KEY" not in watch(bare, service).options.env


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
