"""LlamaIndex's graphs as the JSON document of a workflow: steps joined by the events that they give and take, and
agents by their handoffs. Read by `llama_index`, which watches their runs.

It reads what `@step` leaves on a function, as the framework's own drawing does; that drawing names events only, not
which come in lists or are waited for, and opens the files of resources.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any, get_args

from workflows.events import HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent

from kvpolicy.adapters.frameworks.shape import END, closed

_NOTHING = re.compile(r"\b(None|Optional)\b")
_HANDLER = "catch_error"


def loaded(module: str, name: str) -> tuple[Any, ...]:
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


def fanned(flow: Any) -> frozenset[str]:
    """Steps that run once for each event of a list that another one returned."""
    steps = _Steps(flow)
    takers = {name for step in steps.configs for kind in steps.listed(step) for name in steps.takers(kind)}
    return frozenset(name for name in takers if getattr(steps.configs[name], "collection_param", None) is None)


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
    steps = _Steps(flow)
    edges: list[tuple[str, str]] = []
    groups: dict[tuple[str, str], str] = {}
    for step in steps.configs:
        together, given = steps.together(step), steps.given(step)
        for kind in given:
            if issubclass(kind, StopEvent):
                edges.append((step, END))
                continue
            group = f"{step}:" if kind in together else f"{step}:{kind.__name__}"
            for target in steps.takers(kind):
                edges.append((step, target))
                groups.setdefault((step, target), group)
    failing = [edge for edge in steps.failing() if edge not in edges]
    joins = [n for n in steps.configs if steps.waits(n) and len({a for a, b in edges if b == n}) > 1]
    nodes: dict[str, str | None] = dict.fromkeys(steps.configs)
    return closed(
        _name(flow, type(flow).__name__), nodes, [*edges, *failing], steps.begins(), joins, groups=groups,
        chances=dict.fromkeys(failing, 0.0),
    )  # fmt: skip


class _Steps:
    """A workflow's steps by name, with what `@step` left on each. Kinds of events are their classes."""

    def __init__(self, flow: Any) -> None:
        steps = flow._get_steps()
        self.configs = {name: step._step_config for name, step in steps.items()}
        self._hints = {name: getattr(step, "__annotations__", {}).get("return") for name, step in steps.items()}

    def given(self, step: str) -> list[type]:
        """Kinds that a step may return, or send."""
        return [kind for kind in self.configs[step].return_types if isinstance(kind, type) and kind is not type(None)]

    def listed(self, step: str) -> list[type]:
        """Those that it returns in a list."""
        config = self.configs[step]
        if not getattr(config, "is_fan_out", False):
            return []
        return [kind for kind in self.given(step) if kind not in config.bare_return_types]

    def together(self, step: str) -> list[type]:
        """Those that come together: in a list, or sent, as a step does that may also return nothing."""
        flowing = [kind for kind in self.given(step) if not issubclass(kind, StopEvent)]
        hint = self._hints[step]
        nothing = _NOTHING.search(hint) if isinstance(hint, str) else type(None) in get_args(hint)
        return self.listed(step) or (flowing if nothing and len(flowing) > 1 else [])

    def takers(self, kind: type) -> list[str]:
        """Steps that take it, or the answer of the person that it asks."""
        asks = issubclass(kind, InputRequiredEvent)
        found = []
        for name, config in self.configs.items():
            base = getattr(config, "accept_event_subclasses", False)
            taken = [one for one in config.accepted_events if isinstance(one, type)]
            if any(
                one is kind or (base and issubclass(kind, one)) or (asks and issubclass(one, HumanResponseEvent))
                for one in taken
            ):
                found.append(name)
        return found

    def begins(self) -> list[str]:
        """Steps that a run begins with."""
        taken = {name: config.accepted_events for name, config in self.configs.items()}
        return [
            n for n, kinds in taken.items() if any(isinstance(k, type) and issubclass(k, StartEvent) for k in kinds)
        ]

    def waits(self, step: str) -> bool:
        """Whether it begins when all is there: one of each of its parameters, or all of a list."""
        config = self.configs[step]
        taken = getattr(getattr(config, "collection_policy", None), "cardinality", None)
        return bool(getattr(config, "collect_params", None)) or type(taken).__name__ == "All"

    def failing(self) -> Iterable[tuple[str, str]]:
        """Steps with the handler of what fails in them: the one named for them, else the one for all others."""
        handlers = {n: config for n, config in self.configs.items() if getattr(config, "role", "step") == _HANDLER}
        named = {step: n for n, config in handlers.items() for step in config.catch_error_for_steps or ()}
        others = next((n for n, config in handlers.items() if config.catch_error_for_steps is None), None)
        for step in self.configs:
            handler = named.get(step, None if step in handlers else others)
            if handler is not None:
                yield step, handler


def _name(flow: Any, plain: str) -> str:
    """The name that it was given, else a plain one."""
    kind = type(flow)
    told = getattr(flow, "workflow_name", None)
    return plain if told in (None, f"{kind.__module__}.{kind.__qualname__}") else str(told)
