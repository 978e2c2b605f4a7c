"""OpenTelemetry's `gen_ai.*` spans as a source of events, for frameworks that no module here knows.

    provider.add_span_processor(Watch(service))          # beside the exporters that are there
    client = kvpolicy.annotate(OpenAI(...))              # its calls say which agent's span they are made in

Operations by the semantic conventions: `invoke_agent` is a step, `execute_tool` a pause, `invoke_workflow` (or the
outermost of these spans) the run. A conversation (`gen_ai.conversation.id`) is a session, else the trace is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import SpanProcessor

from kvpolicy.adapters.frameworks.quiet import quiet
from kvpolicy.client.scope import sources
from kvpolicy.client.service import Service
from kvpolicy.runs import Run

STEPS, TOOLS, WHOLE = ("invoke_agent",), ("execute_tool",), ("invoke_workflow",)
_MOST = 10_000  # spans that are remembered as open


@dataclass(frozen=True, slots=True)
class _Place:
    """What holds within a span. opened: the event that its end answers, with its facts; outermost: ends the run."""

    run: Run
    agent: str | None = None
    closes: str | None = None
    facts: Mapping[str, Any] | None = None
    outermost: bool = False


_places: dict[int, _Place] = {}  # by span id


def here() -> Mapping[str, Any] | None:
    """What is known of the span that this thread or task is in; None outside of any."""
    place = _places.get(trace.get_current_span().get_span_context().span_id)
    if place is None:
        return None
    owner = place.run.owner
    return {"session": owner.session, "run": owner.run, "agent": place.agent, "node": place.agent}


sources.append(here)


class Watch(SpanProcessor):
    """A span processor that tells a service. workflow: the name of one that the service knows."""

    def __init__(self, service: Service, workflow: str | None = None) -> None:
        self._service, self._workflow = service, workflow
        self._lock = Lock()

    @quiet
    def on_start(self, span: Any, parent_context: Any = None) -> None:
        """A span begins, within whichever is open around it."""
        attributes = span.attributes or {}
        operation = attributes.get("gen_ai.operation.name")
        outer = None if span.parent is None else _places.get(span.parent.span_id)
        if outer is None and operation not in (*STEPS, *TOOLS, *WHOLE):
            return
        place = self._begun(span, attributes) if outer is None else replace(outer, closes=None, outermost=False)
        if operation in STEPS:
            agent = str(attributes.get("gen_ai.agent.name") or span.name)
            facts: dict[str, Any] = {"node": agent, "agent": agent}
            place.run.event("step_start", **facts)
            place = replace(place, agent=agent, closes="step_end", facts=facts)
        elif operation in TOOLS:
            call = attributes.get("gen_ai.tool.call.id")
            facts = {"tool": str(attributes.get("gen_ai.tool.name") or span.name)}
            facts |= {} if call is None else {"call": str(call)}
            facts |= {} if place.agent is None else {"agent": place.agent}
            place.run.event("tool_call", **facts)
            place = replace(place, closes="tool_result", facts=facts)
        with self._lock:
            _places[span.get_span_context().span_id] = place
            while len(_places) > _MOST:
                del _places[next(iter(_places))]

    def _begun(self, span: Any, attributes: Mapping[str, Any]) -> _Place:
        name = trace.format_trace_id(span.get_span_context().trace_id)
        session = attributes.get("gen_ai.conversation.id") or name
        run = self._service.run(self._workflow, session=str(session), run=name)
        run.event("workflow_start")
        return _Place(run, outermost=True)

    @quiet
    def on_end(self, span: Any) -> None:
        """It ended, well or not."""
        with self._lock:
            place = _places.pop(span.get_span_context().span_id, None)
        if place is None:
            return
        if place.closes is not None:
            place.run.event(place.closes, **(place.facts or {}))
        if place.outermost:
            place.run.event("workflow_end")
