"""A run state that agrees with those of the other replicas: what happens is told to all and applied in one order.

`event_record` and its like make records of what a service sees, `apply` brings a record into a run state, `Replica`
ties the two to a store. Where this replica missed records (a `Gap` that says how many) nothing is guessed: the owners
that they may have been about are forgotten, so that recency alone speaks for them until they are heard of again. Where
the server lost its own (a `Gap` that cannot say) what is known stays: at most the last moments are missing, and a pause
that nobody ends runs out by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from kvpolicy.faults import InputFault, KvpError
from kvpolicy.request import Owner, Request
from kvpolicy.store.contract import Gap, Store
from kvpolicy.store.record import Record, shard_of
from kvpolicy.words import EVENTS, OWNER_FIELDS
from kvpolicy.workflow.events import Event, check_fields
from kvpolicy.workflow.state import RunState, ToolCall

_REQUEST_ATTRIBUTES = ("node", "workflow", "turn", "depth", "plan", "last_step", "agent")


def event_record(event: Event, owner: Owner | None = None, key: str | None = None) -> Record:
    """An event as a record. `owner`: it addresses this one alone; else those that agree with the fields it states.

    Raises InputFault for an event or a field that there is not, and for one without a tenant: every event has one, of
    its fields or of its owner, from authentication.
    """
    if event.name not in EVENTS:
        raise InputFault(f"'{event.name}' is no event")
    check_fields(event.name, event.attributes)
    body: dict[str, object] = {"event": event.name, "attributes": [[k, v] for k, v in event.attributes.items()]}
    if owner is not None:
        return Record("event", owner, {**body, "alone": True}, event.at, key)
    stated = {name: event.attributes.get(name) for name in OWNER_FIELDS}
    tenant = stated["tenant"]
    if not isinstance(tenant, str):
        raise InputFault(f"{event.name}: an event that replicas tell each other states its tenant")
    session, run = (value if isinstance(value, str) else None for value in (stated["session"], stated["run"]))
    return Record("event", Owner(tenant, session, run), body, event.at, key)


def request_record(request: Request, at: float, results: Sequence[str] | None = None) -> Record:
    """A request's arrival: who, how long, where in its workflow; no spans and no text."""
    body: dict[str, object] = {
        "id": request.id,
        "tokens": request.tokens,
        "block_size": request.block_size,
        "model": request.model,
        "attributes": [[k, request.attributes[k]] for k in _REQUEST_ATTRIBUTES if k in request.attributes],
        "results": None if results is None else list(results),
    }
    return Record("request", request.owner, body, at, None if request.key is None else f"request:{request.key}")


def answer_record(
    request: Request,
    at: float,
    *,
    tool_calls: Sequence[ToolCall] = (),
    finished: bool | None = None,
    output_tokens: int | None = None,
) -> Record:
    """An answer's end. Its key is the request's id: an answer that is told twice counts once."""
    calls = [[call, None] if isinstance(call, str) else list(call) for call in tool_calls]
    body = {"id": request.id, "calls": calls, "finished": finished, "output": output_tokens}
    return Record("answer", request.owner, body, at)


def cancel_record(request: Request, at: float) -> Record:
    """A request is withdrawn."""
    return Record("cancel", request.owner, {"id": request.id}, at)


def apply(state: RunState, record: Record) -> tuple[Owner, ...]:
    """Bring a record into a run state. Returns the owners to be planned again. Raises InputFault for a record whose
    fields do not fit, changing nothing."""
    at = state.now if record.at is None else record.at
    body = record.body
    try:
        if record.kind == "event":
            name, attributes = str(body["event"]), _pairs(body["attributes"])
            if name not in EVENTS:
                raise InputFault(f"'{name}' is no event")
            check_fields(name, attributes)
            return state.observe(Event(at, name, attributes), record.owner if body.get("alone") else None)
        if record.kind == "request":
            results = body.get("results")
            return state.arrive(_request(record), at, None if results is None else _texts(results))
        if record.kind == "answer":
            calls: list[ToolCall] = [(tool, call) for tool, call in _rows(body["calls"])]
            finished, output = body.get("finished"), body.get("output")
            return state.answer(
                _request(record),
                at,
                tool_calls=calls,
                finished=None if finished is None else bool(finished),
                output_tokens=output if isinstance(output, int) else None,
            )
        if record.kind == "touched":
            return state.touched(str(body["id"]), at)
        if record.kind == "cancel":
            return state.cancel(str(body["id"]), at)
    except (KeyError, TypeError, ValueError) as fault:
        raise InputFault(f"a record of kind {record.kind} that does not fit: {fault}") from None
    return ()  # claims and releases are no matter of a run state


class Replica:
    """One replica's run state over a store. Not for several threads at once."""

    def __init__(self, store: Store, state: RunState) -> None:
        self.store, self.state, self.counters = store, state, Counter[str]()

    def tell(self, record: Record, budget: float | None = None) -> tuple[Owner, ...]:
        """Tell everybody, wait for the order at most `budget` seconds (None: the store's), and apply what came."""
        self.store.append(record)
        self.store.settle(budget)
        return self.catch_up()

    def catch_up(self, limit: int = 10_000) -> tuple[Owner, ...]:
        """Apply what has arrived, at most `limit` records. Never waits. Returns the owners to be planned again."""
        changed: dict[Owner, None] = {}
        taken = 0
        while taken < limit:
            batch = self.store.take(min(1000, limit - taken))
            if not batch:
                break
            taken += len(batch)
            for record in batch:
                changed.update(dict.fromkeys(self._one(record)))
        return tuple(changed)

    def _one(self, record: Record | Gap) -> tuple[Owner, ...]:
        if isinstance(record, Gap):
            self.counters["gaps"] += 1
            if record.lost is None:
                return ()
            gone = [owner for owner in self.state.owners() if shard_of(owner, self.store.shards) == record.shard]
            for owner in gone:
                self.state.forget(owner)
            self.counters["forgotten"] += len(gone)
            return tuple(gone)
        try:
            changed = apply(self.state, record)
        except KvpError:
            self.counters["refused"] += 1
            return ()
        except Exception:
            self.counters["failures"] += 1  # a record must not stop those after it
            return ()
        self.counters["applied"] += 1
        return changed


def _request(record: Record) -> Request:
    body = record.body
    tokens, size = body.get("tokens", 0), body.get("block_size", 1)
    if not isinstance(tokens, int) or not isinstance(size, int):
        raise TypeError("tokens and block_size are whole numbers")
    model = body.get("model")
    return Request(
        str(body["id"]),
        record.owner,
        tokens,
        size,
        model=model if isinstance(model, str) else None,
        attributes=_pairs(body.get("attributes", ())),
    )


def _rows(value: object) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise TypeError("a list is missing")
    return list(value)


def _pairs(value: object) -> Mapping[str, object]:
    return {str(name): part for name, part in _rows(value)}


def _texts(value: object) -> list[str]:
    return [str(part) for part in _rows(value)]
