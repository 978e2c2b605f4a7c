"""Steps of requests: they start, are computed piece by piece, generate, are preempted, resumed, finished, cancelled."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from kvpolicy.claims.answers import Answer
from kvpolicy.faults import InputFault, Notice
from kvpolicy.hashes import block_hashes
from kvpolicy.replay import fields
from kvpolicy.replay.fields import Step
from kvpolicy.replay.incoming import read, read_parts
from kvpolicy.replay.stage import Flow, Row, Stage, hints, unheard
from kvpolicy.steering.show import TOP_BAND

MOST_ACCEPTED = 1 << 20  # generated tokens of one step: an answer has thousands


def request(stage: Stage, step: Step, now: float) -> Row:
    """`id`, `tokens` (a list) or `hashes`, `owner`, `spans`, `key`, `computed` and the static attributes."""
    name = fields.text(step, "id")
    flow, hashes = read(stage, step, name)
    computed = fields.count(step, "computed", flow.length)
    running = stage.steering.running.get(name)
    if running is not None and (running.request.key is None or running.request.key != flow.request.key):
        answer = Answer("rejected", reason=f"request '{name}' runs already; a retry of it carries its 'key'")
        return {"status": "rejected", "cached_tokens": 0, "stored": [], "evicted": [], "hints": hints([answer])}
    worker = fields.maybe_text(step, "worker")
    if worker is not None:
        stage.residency.sent(worker, now)
    size, pool = stage.pool.block_size, stage.pool
    blocks = None
    if "computed" in step:  # what is cached is computed as soon as the request is there
        blocks = max(min(computed // size, len(hashes)), pool.match(hashes))
    if running is None:
        stage.names.begin(name, hashes, flow.length, given=flow.given)
    outcome = stage.steering.request(flow.request, hashes, now, blocks=blocks)
    stage.names.heed()
    answer_row: Row = {
        "cached_tokens": min(outcome.cached * size, flow.length),
        "stored": stage.names.shown(outcome.stored),
        "evicted": stage.names.shown(outcome.evicted),
        "hints": hints(outcome.hints),
    }
    if outcome.joined:
        answer_row["joined"] = True
    else:
        stage.flows[name] = flow
        stage.came(flow.request)
    if outcome.failed:
        answer_row["failed"] = True
    notices = [] if outcome.plan is None else list(outcome.plan.notices)
    if not outcome.joined:
        show = fields.flag(step, "show_difference") is True
        notices += stage.history.compare(flow.request, hashes, flow.tokens, show=show)
    notices += _block_size(stage, step) + _saturated(stage)
    if notices:
        answer_row["notices"] = [notice.as_json() for notice in notices]
    return answer_row


def progress(stage: Stage, step: Step, now: float) -> Row:
    """`computed`: prompt tokens computed by now; `accepted`: generated tokens that stay (ids, or how many); `hashes`:
    names of the blocks they fill."""
    fields.only(step, "id", "computed", "accepted", "hashes")
    name = fields.text(step, "id")
    computed = fields.count(step, "computed") if "computed" in step else None
    accepted = _accepted(step)
    named = fields.names(step, "hashes") if "hashes" in step else []
    flow = stage.flows.get(name)
    running = stage.steering.running.get(name)
    if flow is None or running is None or flow.preempted:
        return {**unheard(name), "stored": []}
    if not accepted and computed is None:
        raise InputFault("progress: 'computed' or 'accepted' is needed")
    size = stage.pool.block_size
    new: list[Hashable] = []
    if accepted:
        known = len(running.hashes)
        if flow.tokens is not None:
            if isinstance(step["accepted"], int):
                raise InputFault("progress: accepted: token ids are needed, as the prompt came as tokens")
            flow.tokens += accepted
            stage.history.grew(flow.request, accepted)
        flow.length += len(accepted)
        if flow.length // size > known:
            new = _names_of_new(flow, name, known, size, named)
        stage.names.grow(name, new, flow.length, given=flow.given)
    blocks = None if accepted or computed is None else computed // size
    stored = stage.steering.progress(name, now, blocks=blocks, hashes=new)
    stage.names.heed()
    return {"stored": stage.names.shown(stored), "full_blocks": running.lease.length}


def finish(stage: Stage, step: Step, now: float) -> Row:
    """`id`, and what came of it: `tool_calls` (names, or `{"tool", "call"}`), `finished` (a human is next), `parts`
    (the spans that the output was made of)."""
    fields.only(step, "id", "tool_calls", "finished", "parts")
    name = fields.text(step, "id")
    calls = [_call(call) for call in step.get("tool_calls") or ()]
    finished = fields.flag(step, "finished")
    ids = _riders(stage, name)
    parts = read_parts(stage, step)
    done = stage.steering.finish(name, now, tool_calls=calls, finished=finished, parts=parts)
    return _ended(stage, name, ids) if done else unheard(name)


def cancel(stage: Stage, step: Step, now: float) -> Row:
    """`id`: withdrawn. What it alone claimed goes after the grace."""
    fields.only(step, "id")
    name = fields.text(step, "id")
    ids = _riders(stage, name)
    if not stage.steering.cancel(name, now):
        return unheard(name)
    return _ended(stage, name, [id for id in ids if id not in stage.steering.running])


def preempt(stage: Stage, step: Step, now: float) -> Row:
    """The engine takes a running request's blocks back; it will go on later. Its claims stand, but hold nothing."""
    fields.only(step, "id")
    name = fields.text(step, "id")
    flow, released = stage.flows.get(name), stage.steering.preempt(name, now)
    if flow is None or released is None:
        return unheard(name)
    flow.preempted = True
    return {"status": "accepted", "released": released, "hints": hints([Answer("accepted")])}


def resume(stage: Stage, step: Step, now: float) -> Row:
    """A preempted request goes on. → `own_reused`: blocks of its own that were still there."""
    fields.only(step, "id")
    name = fields.text(step, "id")
    flow, lease = stage.flows.get(name), stage.steering.resume(name, now)
    stage.names.heed()
    if flow is None or lease is None:
        return {**unheard(name), "own_reused": 0}
    flow.preempted = False
    return {
        "own_reused": lease.hits,
        "stored": stage.names.shown(lease.stored),
        "evicted": stage.names.shown(lease.evicted),
        "hints": hints([Answer("accepted")]),
    }


# --- inside -----------------------------------------------------------------------------------------------------------


def _accepted(step: Step) -> list[int]:
    value = step.get("accepted")
    if isinstance(value, int) and not isinstance(value, bool):
        if fields.count(step, "accepted") > MOST_ACCEPTED:
            raise InputFault(f"progress: accepted: at most {MOST_ACCEPTED} tokens in one step, not {value}")
        return [-1] * value
    return fields.tokens(step, "accepted") or []


def _names_of_new(flow: Flow, name: str, known: int, size: int, named: list[str | int]) -> list[Hashable]:
    """Hashes of the blocks behind the first `known` that are full by now."""
    full = flow.length // size
    if flow.given:
        own = [f"{name}:{index}" for index in range(known, full)]
        return list([*named, *own[len(named) :]][: full - known])
    assert flow.tokens is not None
    return list(block_hashes(flow.tokens[: flow.certain], size, flow.extra)[known:full])


def _call(call: object) -> str | tuple[str | None, str | None]:
    if isinstance(call, str):
        return call
    if isinstance(call, Mapping):
        tool, id = call.get("tool"), call.get("call")
        if isinstance(tool, str) and (id is None or isinstance(id, str)):
            return (tool, id)
    raise InputFault('finish: tool_calls: names of tools, or {"tool": "grep", "call": "c1"}')


def _riders(stage: Stage, name: str) -> list[str]:
    running = stage.steering.running.get(name)
    return [] if running is None else sorted({*running.riders, running.request.id})


def _ended(stage: Stage, name: str, ids: list[str]) -> Row:
    for id in ids:
        stage.flows.pop(id, None)
        stage.names.end(id)
    row: dict[str, Any] = {"status": "accepted", "hints": hints([Answer("accepted")])}
    if name not in ids:
        row["reason"] = "a retry that joined it runs on"
    return row


def _block_size(stage: Stage, step: Step) -> list[Notice]:
    told = fields.count(step, "block_size") if step.get("block_size") is not None else stage.pool.block_size
    if told == stage.pool.block_size:
        return []
    text = (
        f"the request counts blocks of {told} tokens, the engine has blocks of {stage.pool.block_size}; its size counts"
    )
    return [Notice("BLOCK_SIZE_MISMATCH", text, {"told": told, "block_size": stage.pool.block_size})]


def _saturated(stage: Stage) -> list[Notice]:
    """Once, when the pool is full and even the next block to leave has the highest priority: then ranks say nothing."""
    pool = stage.pool
    first = pool.gpu.order.first() if pool.used >= pool.capacity else None
    before, stage.saturated = stage.saturated, first is not None and first.rank >= TOP_BAND
    if first is None:
        stage.saturated = before
    if before or not stage.saturated:
        return []
    text = "every block that could leave has the highest priority: the order of eviction is that of LRU"
    return [Notice("PRIORITY_SATURATED", text)]
