"""What the tests of the Claude Agent SDK share: a served stack, a way to it, options, and what is found of a prompt."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk import AgentDefinition, AssistantMessage, ClaudeAgentOptions, ResultMessage, query

from kvpolicy.client import once
from kvpolicy.client.sending import exchange
from tests.frameworks.claude_code import Between, answered, at_home, between, calls_tool
from tests.frameworks.conftest import Stack
from tests.frameworks.scenes import LONG
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
