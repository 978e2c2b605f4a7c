"""Any trace as a file of our own form, row by row: what `kvp trace make` prints. `own` reads it back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kvpolicy.request import Owner
from kvpolicy.simulate.own import HEADER, VERSION
from kvpolicy.simulate.trace import Call, Facts, Trace

_OWNER = ("session", "run", "agent", "branch", "parent")


def rows(trace: Trace, facts: Facts) -> Iterator[dict[str, Any]]:
    """The header, then events and calls in order of time."""
    first = True
    for call in trace.calls(facts):
        if first:
            first = False
            yield _header(facts)
        for event in call.before:
            yield {"at": _time(event.get("at", call.at)), **{k: v for k, v in event.items() if k != "at"}}
        yield _call(call)
        for event in call.after:
            yield {"at": _time(event.get("at", call.at)), **{k: v for k, v in event.items() if k != "at"}}


def _header(facts: Facts) -> dict[str, Any]:
    row: dict[str, Any] = {HEADER: VERSION, "block_size": facts.block_size, "time_unit": "s", "label": facts.label}
    if facts.workflow is not None:
        row["workflow"] = facts.workflow
    return row


def _call(call: Call) -> dict[str, Any]:
    request, answer = call.request, call.answer
    row: dict[str, Any] = {"at": _time(call.at), "id": request.id, "owner": _owner(request.owner)}
    if call.pause is not None:
        row["pause"] = call.pause
    if call.took is not None:
        row["took"] = call.took
    if call.waits_for is not None:
        row["waits_for"] = list(call.waits_for)
    if request.model is not None:
        row["model"] = request.model
    row |= {"tokens": request.tokens, "hashes": list(call.hashes)}
    spans = [{"kind": s.kind, "start": s.start, "end": s.end, **s.attributes} for s in request.spans]
    said = {
        "stop": answer.stop,
        "tool_calls": [tool for tool in answer.tool_calls if tool is not None],
        "output_tokens": answer.output_tokens,
        "output_types": list(answer.types),
    }
    optional: dict[str, Mapping[str, object] | list[Any]] = {
        "spans": spans,
        "attributes": dict(request.attributes),
        "answer": {key: value for key, value in said.items() if value},
    }
    return row | {key: value for key, value in optional.items() if value}


def _owner(owner: Owner) -> dict[str, str]:
    said = {} if owner.tenant == "default" else {"tenant": owner.tenant}
    return said | {key: value for key in _OWNER if (value := getattr(owner, key)) is not None}


def _time(value: object) -> float:
    assert isinstance(value, int | float)
    return float(value)
