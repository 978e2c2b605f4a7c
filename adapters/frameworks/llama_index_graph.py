"""LlamaIndex's graphs as the JSON document of a workflow: steps joined by the events that they give and take, and
agents by their handoffs. Read by `llama_index`, which watches their runs.

Steps and events come from the framework's own drawing of a workflow; what waits for several, and what a list returned
means, from the configuration that `@step` leaves on a function.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

from workflows.events import StepFailedEvent
from workflows.representation import get_workflow_representation

from kvpolicy.adapters.frameworks.shape import END, closed

_PERSON = "external"


def loaded(module: str, name: str) -> tuple[type, ...]:
    """A class of llama-index-core, as isinstance takes it; none where the application did not load that package."""
    found = getattr(sys.modules.get(f"llama_index.core.{module}"), name, None)
    return (found,) if isinstance(found, type) else ()


def agents_of(flow: Any) -> Mapping[str, Any] | None:
    """The agents of an `AgentWorkflow`, by name, or of an agent that runs alone; None of any other workflow."""
    if isinstance(flow, loaded("agent.workflow", "AgentWorkflow")):
        return dict(flow.agents)
    return {str(flow.name): flow} if isinstance(flow, loaded("agent.workflow", "BaseWorkflowAgent")) else None


def graph(flow: Any) -> dict[str, Any]:
    """A workflow's steps, or its agents, as a workflow: union types are alternatives, events that a step gives together
    (a list; several kinds beside None, which are sent) go together; a step with several event parameters, or one that
    takes a whole list, waits for all that lead there. A person who is asked is no step. Handlers of errors
    (`@catch_error`) are ways that nobody expects."""
    agents = agents_of(flow)
    return _steps(flow) if agents is None else _handoffs(flow, agents)


def _handoffs(flow: Any, agents: Mapping[str, Any]) -> dict[str, Any]:
    first = str(getattr(flow, "root_agent", None) or next(iter(agents)))
    nodes: dict[str, str | None] = {first: None}
    edges: list[tuple[str, str]] = []
    for name in (waiting := [first]):  # it grows on the way
        allowed = agents[name].can_handoff_to
        targets = [other for other in agents if other != name and (allowed is None or other in allowed)]
        edges += [(name, other) for other in targets]
        waiting += [other for other in targets if other not in nodes]
        nodes |= dict.fromkeys(targets)
    return closed(_name(flow, f"{first}-handoffs"), nodes, [*edges, *((name, END) for name in nodes)], [first])


def _steps(flow: Any) -> dict[str, Any]:
    drawn, configs = _Drawn(flow), _configs(flow)
    edges: list[tuple[str, str]] = []
    groups: dict[tuple[str, str], str] = {}
    for step in drawn.steps:
        config = configs.get(step)
        listed, sent = _listed(config), type(None) in getattr(config, "return_types", ())
        flowing = [event for event in drawn.given(step) if not drawn.ends(event)]
        for event in drawn.given(step):
            if drawn.ends(event):
                edges.append((step, END))
                continue
            kind = "[]" if event in listed else "" if sent and len(flowing) > 1 else event
            for target in drawn.takers(event):
                edges.append((step, target))
                groups.setdefault((step, target), f"{step}:{kind}")
    failing = list(_failing(drawn.steps, configs))
    into = {name: {source for source, target in edges if target == name} for name in drawn.steps}
    joins = [name for name, sources in into.items() if len(sources) > 1 and _waits(configs.get(name))]
    nodes: dict[str, str | None] = dict.fromkeys(drawn.steps)
    told = closed(_name(flow, drawn.name), nodes, [*edges, *failing], drawn.begins(), joins, groups=groups)
    for row in told["edges"]:
        if (row["from"], row["to"]) in failing and (row["from"], row["to"]) not in edges:
            row["probability"] = 0.0
    return told


class _Drawn:
    """The framework's drawing: steps, and between them events, and a person where one is asked."""

    def __init__(self, flow: Any) -> None:
        drawn = get_workflow_representation(flow)
        self.name = str(drawn.name)
        self._nodes = {node.id: node for node in drawn.nodes}
        self.steps = [node.id for node in drawn.nodes if node.node_type == "step"]
        self._onward: dict[str, list[str]] = {}
        for edge in drawn.edges:
            self._onward.setdefault(edge.source, []).append(edge.target)

    def given(self, step: str) -> list[str]:
        """Events that a step may return."""
        return [name for name in self._onward.get(step, ()) if self._nodes[name].node_type == "event"]

    def ends(self, event: str) -> bool:
        """Whether it ends the run."""
        return "StopEvent" in self._nodes[event].event_types

    def takers(self, event: str) -> list[str]:
        """Steps that take it, or the answer of the person that it asks."""
        found: list[str] = []
        for name in self._onward.get(event, ()):
            asked = self._nodes[name].node_type == _PERSON
            found += [t for reply in self._onward.get(name, ()) for t in self.takers(reply)] if asked else [name]
        return list(dict.fromkeys(name for name in found if name in self.steps))

    def begins(self) -> list[str]:
        """Steps that a run begins with."""
        starts = [name for name, node in self._nodes.items() if "StartEvent" in (getattr(node, "event_types", 0) or ())]
        return list(dict.fromkeys(step for event in starts for step in self.takers(event)))


def fanned(flow: Any) -> frozenset[str]:
    """Steps that run once for each event of a list that another one returned."""
    if agents_of(flow) is not None:
        return frozenset()
    drawn, configs = _Drawn(flow), _configs(flow)
    listed = {event for step in drawn.steps for event in _listed(configs.get(step))}
    takers = {step for event in listed for step in drawn.takers(event)}
    return frozenset(step for step in takers if getattr(configs.get(step), "collection_param", None) is None)


def _configs(flow: Any) -> dict[str, Any]:
    """What `@step` left on each step."""
    steps = getattr(flow, "_get_steps", dict)()
    return {name: config for name, step in steps.items() if (config := getattr(step, "_step_config", None))}


def _listed(config: Any) -> set[str]:
    """Kinds of events that a step returns in a list."""
    if not getattr(config, "is_fan_out", False):
        return set()
    return {
        kind.__name__ for kind in config.return_types if isinstance(kind, type) and kind not in config.bare_return_types
    }


def _waits(config: Any) -> bool:
    """Whether a step begins when all is there: one of each of its parameters, or all of a list."""
    taken = getattr(getattr(config, "collection_policy", None), "cardinality", None)
    return bool(getattr(config, "collect_params", None)) or type(taken).__name__ == "All"


def _failing(steps: Iterable[str], configs: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """Steps with the handler of what fails in them, the one named for them before the one for all others."""
    handlers = {name: one for name, one in configs.items() if getattr(one, "role", "step") == "catch_error"}
    named = {step: name for name, one in handlers.items() for step in one.catch_error_for_steps or ()}
    others = next((name for name, one in handlers.items() if one.catch_error_for_steps is None), None)
    for step in steps:
        handler = named.get(step, None if step in handlers else others)
        if handler is not None and StepFailedEvent in configs[handler].accepted_events:
            yield step, handler


def _name(flow: Any, plain: str) -> str:
    """The name that it was given, else a plain one."""
    kind = type(flow)
    told = getattr(flow, "workflow_name", None)
    return plain if told in (None, f"{kind.__module__}.{kind.__qualname__}") else str(told)
