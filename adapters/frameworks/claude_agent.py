"""The Claude Agent SDK: sub-agents as steps, tools as pauses, compaction, by the SDK's own hooks.

    async with watch(options, service, session="s1") as watched:
        async for message in query(prompt="…", options=watched): ...

The calls are made by a process of their own, Claude Code, which takes an address: the service's, and in it whose run
it is (`client.wire.base_url`). It names its sub-agents by ids in a header; hooks say which of them an id is.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import replace
from types import TracebackType
from typing import Any
from uuid import uuid4

from claude_agent_sdk import ClaudeAgentOptions, HookMatcher

from kvpolicy.adapters.frameworks.quiet import quiet, tested
from kvpolicy.adapters.frameworks.shape import END, closed
from kvpolicy.client.once import warn_once
from kvpolicy.client.scope import Scope
from kvpolicy.client.service import Service
from kvpolicy.client.wire import PREFIX, base_url
from kvpolicy.request import Owner
from kvpolicy.runs import Run

MAIN = "main"  # the node of the agent that the prompts go to
ADDRESS = "ANTHROPIC_BASE_URL"
_KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
VOLATILE = "CLAUDE_CODE_ATTRIBUTION_HEADER"
_SOON_S = 0.25  # a sub-agent's first call waits as long for the service to hear whose it is


class Watched(AbstractContextManager[ClaudeAgentOptions], AbstractAsyncContextManager[ClaudeAgentOptions]):
    """A run, to be entered around `query` or a client's life. Entering gives the options to use."""

    def __init__(self, run: Run, service: Service, options: ClaudeAgentOptions) -> None:
        self.run = run
        self._service = service
        self.options = quiet(self._hooked)(options) or options

    def __enter__(self) -> ClaudeAgentOptions:
        self.run.__enter__()
        quiet(self.run.event)("step_start", node=MAIN)
        return self.options

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.run.__exit__(kind, fault, trace)

    async def __aenter__(self) -> ClaudeAgentOptions:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, fault, trace)

    def _hooked(self, options: ClaudeAgentOptions) -> ClaudeAgentOptions:
        """The same options with our hooks behind those that are there, and the address; those of another run that they
        were watched for are left out. # INVARIANT: the caller's own options stay as they are."""
        told: dict[Any, list[HookMatcher]] = {
            name: [one for one in each if not all(map(_is_ours, one.hooks))]
            for name, each in (options.hooks or {}).items()
        }
        for event, hook in _HOOKS.items():
            told.setdefault(event, []).append(HookMatcher(hooks=[self._hook(hook)]))
        owner = self.run.owner
        place = Scope(session=owner.session, run=owner.run, workflow=self.run.workflow, node=MAIN)
        env = {ADDRESS: self._service.url, VOLATILE: os.environ.get(VOLATILE, "0"), **options.env}
        if env[ADDRESS].partition(PREFIX)[0].rstrip("/") == self._service.url:
            env[ADDRESS] = base_url(self._service.url, place)
            if self._service._key is not None and not any(name in env or name in os.environ for name in _KEYS):
                env[_KEYS[0]] = self._service._key
        return replace(options, hooks=told, env=env)

    def _hook(self, hook: Any) -> Any:
        """A hook with no opinion on what happens, whatever becomes of it."""

        async def called(given: Any, call: str | None, context: Any) -> dict[str, Any]:
            await hook(self, given)
            return {}

        called.of_kvpolicy = True  # type: ignore[attr-defined]
        return called

    def _told(self, event: str, given: Mapping[str, Any], **facts: Any) -> None:
        """An event of whoever the hook was called for: a sub-agent by its id, else the main agent."""
        agent = given.get("agent_id")
        whose = {"node": MAIN} if agent is None else {"agent": str(agent)}
        if self.run.owner.session is None:
            whose["session"] = str(given["session_id"])
        self.run.event(event, **{**whose, **facts})

    @quiet
    async def _before_tool(self, given: Mapping[str, Any]) -> None:
        self._told("tool_call", given, tool=str(given["tool_name"]), call=str(given["tool_use_id"]))

    @quiet
    async def _after_tool(self, given: Mapping[str, Any]) -> None:
        """It returned, or failed, which is a result, too."""
        self._told("tool_result", given, tool=str(given["tool_name"]), call=str(given["tool_use_id"]))

    @quiet
    async def _agent_begins(self, given: Mapping[str, Any]) -> None:
        self._told("step_start", given, node=str(given["agent_type"]))
        await asyncio.to_thread(self._service.flush, _SOON_S)

    @quiet
    async def _agent_ends(self, given: Mapping[str, Any]) -> None:
        """Also of what compacts, which has no type and did not begin."""
        if given.get("agent_type"):
            self._told("step_end", given, node=str(given["agent_type"]))

    @quiet
    async def _compacted(self, given: Mapping[str, Any]) -> None:
        """The history is another now; the call that summed it up still had it all."""
        self._told("compact", given)


def _is_ours(hook: Any) -> bool:
    return bool(getattr(hook, "of_kvpolicy", False))


# `PostCompact` is none of the names that the SDK's types list; Claude Code knows it.
_HOOKS = {
    "PreToolUse": Watched._before_tool,
    "PostToolUse": Watched._after_tool,
    "PostToolUseFailure": Watched._after_tool,
    "SubagentStart": Watched._agent_begins,
    "SubagentStop": Watched._agent_ends,
    "PostCompact": Watched._compacted,
}


def watch(
    options: ClaudeAgentOptions, service: Service, *, session: str | None = None, workflow: str | None = None
) -> Watched:
    """The run of an agent with these options, to be entered around it: `async with watch(…) as watched`. Its sub-agents
    are told to the service as a graph. session: by default each session of Claude Code is one, also when it is resumed.
    workflow: the graph's name there."""
    tested("claude-agent-sdk", (0, 2), (0, 3))
    name = quiet(lambda: service.describe(graph(options), workflow))()
    return Watched(Run(service, Owner(session=session, run=f"r-{uuid4().hex}"), name), service, options)


def graph(options: ClaudeAgentOptions) -> dict[str, Any]:
    """The main agent and the sub-agents that the options define, which it calls as often as it likes. One that is named
    as a node of ours is left out."""
    nodes: dict[str, str | None] = {MAIN: None}
    for name in options.agents or ():
        if name in (MAIN, END):
            warn_once(f"agent {name}", f"a sub-agent named {name} is none of the graph: give it another name")
        else:
            nodes[name] = MAIN
    return closed("claude-agent", nodes, [(MAIN, END)], [MAIN])
