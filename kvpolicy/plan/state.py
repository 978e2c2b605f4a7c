"""The state in which a document's plan is made: the request arrives, its events follow, functions are assumed.

For `kvp plan`; a running service keeps its run state and needs none of this.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from kvpolicy.assumed import Assumed, Assumption
from kvpolicy.blocks import lay_out
from kvpolicy.faults import InputFault
from kvpolicy.language.nesting import outermost
from kvpolicy.language.syntax import Workflow
from kvpolicy.policy.model import IntervalPattern, State
from kvpolicy.request import Request
from kvpolicy.workflow.events import events_from_rows
from kvpolicy.workflow.graph import Graph
from kvpolicy.workflow.state import RunState

_RUNNING = "running"


class Situated(Protocol):
    """What is needed of a policy here."""

    @property
    def intervals(self) -> Iterable[IntervalPattern]:
        """The intervals its rules stand in."""
        ...

    @property
    def workflows(self) -> Sequence[Workflow]:
        """The workflows it describes."""
        ...


def run_state(
    policy: Situated,
    request: Request,
    events: Iterable[Mapping[str, object]] = (),
    functions: Sequence[Assumption] = (),
    workflow: Mapping[str, object] | None = None,
    now: float | None = None,
) -> tuple[State, float]:
    """The state at `now` and `now` itself: by default the time of the last event, else 0.

    The request's owner runs from the first event on; an event that ends its answer leaves it idle from then. Events
    after `now` have not happened. workflow: a graph as JSON, else the policy's. Raises InputFault naming the event.
    """
    told = events_from_rows(events)
    _check_spans(request, functions)
    if now is None:
        now = told[-1].at if told else 0.0
    state = RunState(policy.intervals, _graph(policy.workflows, request, workflow))
    state.arrive(request, min([now, *(event.at for event in told[:1])]))
    for event in told:
        if event.at > now:
            break
        if request.owner in state.observe(event) and state.phase(request.owner) != _RUNNING:
            state.answer(request, event.at)
    state.advance(now)
    return (Assumed(state, functions) if functions else state), now


def _check_spans(request: Request, functions: Sequence[Assumption]) -> None:
    """A function that is assumed of a span is of one that the request has. Raises InputFault."""
    stated = [(number, each.index) for number, each in enumerate(functions) if each.index is not None]
    count = len(lay_out(request).spans) if stated else 0
    for number, index in stated:
        if not 0 <= index < count:
            have = f"0 to {count - 1}" if count > 1 else "0 alone" if count else "none"
            raise InputFault(f"functions[{number}].span: {index} is no span of the request; it has {have}")


def _graph(workflows: Sequence[Workflow], request: Request, stated: Mapping[str, object] | None) -> Graph | None:
    """The stated workflow; else the policy's own: the one the request names, else the only one in no other."""
    if stated is not None:
        return Graph.sound(stated)
    name = request.attributes.get("workflow")
    whole = outermost(workflows)
    named = [w for w in workflows if w.name == name] or (whole if len(whole) == 1 else ())
    return Graph.build(named[0]) if named else None
