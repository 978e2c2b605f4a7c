"""What is read from options of the Claude Agent SDK (graphs: distances counted by hand), and what is put into them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk import HookMatcher

import kvpolicy
from kvpolicy.adapters.frameworks.claude_agent import ADDRESS, graph, watch
from kvpolicy.client import once
from kvpolicy.workflow.graph import Graph
from kvpolicy.workflow.position import Position
from tests.frameworks.claude_flows import options


@pytest.mark.parametrize(
    ("names", "steps"),
    [((), {"main": 0, "end": 1}), (("a", "b"), {"main": 0, "a": 1, "b": 1, "end": 1})],
)
def test_graphs(names: tuple[str, ...], steps: dict[str, int], tmp_path: Path) -> None:
    chosen = options(tmp_path, *names)
    assert Position(Graph.sound(graph(chosen))).all_steps() == steps
    assert kvpolicy.Engine(blocks=8).run(chosen).workflow == "claude-agent"  # found by its entry point


@pytest.mark.parametrize("name", ["main", "__end__"])
def test_a_sub_agent_named_as_a_node_of_ours_is_left_out_of_the_graph(name: str, tmp_path: Path) -> None:
    once.counts.clear()
    assert Position(Graph.sound(graph(options(tmp_path, name, "a")))).all_steps() == {"main": 0, "a": 1, "end": 1}
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
