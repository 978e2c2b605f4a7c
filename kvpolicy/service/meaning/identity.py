"""Which session a request says it belongs to: our own words first, then what clients send already.

Read by `sessions`. The order is that of trust in the word, not of the client; identifiers are namespaced by tenant
before anything is looked up by them. A key that never comes twice is no session (`SESSION_ID_NEVER_REPEATS`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvpolicy.service.meaning.annotations import Context, name_of

# In this order the first that is said counts.
SESSION_HEADERS = (
    "x-session-id",
    "x-dynamo-session-id",
    "x-claude-code-session-id",
    "x-session-affinity",
    "session-id",
    "session_id",
    "x-correlation-id",
)
AGENT_HEADERS = ("x-claude-code-agent-id",)
PARENT_HEADERS = (
    "x-claude-code-parent-agent-id",
    "x-dynamo-parent-session-id",
    "x-parent-session-id",
    "x-codex-parent-thread-id",
)
SESSION_FIELDS = ("session_id", "prompt_cache_key")
FINAL_HEADERS = ("x-dynamo-session-final",)


def identified(context: Context, headers: Mapping[str, str], body: Mapping[str, Any]) -> Context:
    """The context with what known headers and body fields say where it says nothing itself."""
    session = context.session or _first(SESSION_HEADERS, headers) or _first(SESSION_FIELDS, body) or _metadata(body)
    agent = context.agent or _first(AGENT_HEADERS, headers)
    parent = context.parent or _first(PARENT_HEADERS, headers)
    final = context.final
    if final is None and any(headers.get(name, "").lower() in ("1", "true", "?1") for name in FINAL_HEADERS):
        final = True
    if (session, agent, parent, final) == (context.session, context.agent, context.parent, context.final):
        return context
    return Context(
        session,
        context.run,
        context.workflow,
        context.node,
        agent,
        context.turn,
        context.branch,
        parent,
        context.depth,
        context.last_step,
        final,
    )


def _first(names: tuple[str, ...], where: Mapping[str, Any]) -> str | None:
    for name in names:
        found = name_of(where.get(name))
        if found is not None:
            return found
    return None


def _metadata(body: Mapping[str, Any]) -> str | None:
    """`metadata.session_id`, as several frameworks send it."""
    told = body.get("metadata")
    return name_of(told.get("session_id")) if isinstance(told, Mapping) else None
