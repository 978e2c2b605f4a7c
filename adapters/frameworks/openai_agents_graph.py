"""The graphs of OpenAI's Agents SDK: what an agent may hand off to, and those that are tools of others.

Made by `watch` and by the entry point `kvpolicy.workflows`; read by the service and by `kvpolicy.Engine`.
"""

from __future__ import annotations

from typing import Any

from agents import Handoff

from kvpolicy.adapters.frameworks.shape import END, closed


def graph(agent: Any) -> dict[str, Any]:
    """What an agent may hand off to, and those in turn, as a workflow. Each agent may also end the run. Agents that are
    tools of another are called by it (`parent`), and so are those that such an agent hands off to: that is a run within
    the call, which ends where the call does."""
    begin = str(agent.name)
    handoffs: dict[str, list[str]] = {}
    callers: dict[str, str] = {}  # of each agent but the first: who led to it first
    waiting = [agent]
    while waiting:
        one = waiting.pop(0)
        name = str(one.name)
        if name in handoffs:
            continue
        handoffs[name] = []
        for target in getattr(one, "handoffs", ()):
            other = _agent_of(target)
            to = str(target.agent_name) if isinstance(target, Handoff) else str(target.name)
            handoffs[name].append(to)
            callers.setdefault(to, name)
            waiting += [] if other is None else [other]
        for tool in getattr(one, "tools", ()):
            inner = getattr(tool, "_agent_instance", None)
            if inner is not None:
                callers.setdefault(str(inner.name), name)
                waiting.append(inner)
    handed = [begin]  # those that the run itself comes to
    for name in handed:
        handed += [to for to in dict.fromkeys(handoffs.get(name, ())) if to not in handed]
    names = {name: None if name in handed else callers[name] for name in dict.fromkeys((begin, *callers))}
    edges = [(name, to) for name in handed for to in handoffs.get(name, ())]
    return closed(f"{agent.name}-handoffs", names, [*edges, *((name, END) for name in handed)], [begin])


def _agent_of(target: Any) -> Any:
    """The agent that a handoff leads to, where it can be reached."""
    if not isinstance(target, Handoff):
        return target
    reference = getattr(target, "_agent_ref", None)
    return None if reference is None else reference()
