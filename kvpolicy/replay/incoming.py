"""The request of a step: read, checked, and with the hashes of its blocks."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from kvpolicy.faults import InputFault
from kvpolicy.hashes import block_hashes
from kvpolicy.replay import fields
from kvpolicy.replay.fields import Step
from kvpolicy.replay.stage import Flow, Stage
from kvpolicy.request import Span
from kvpolicy.request_json import read_request
from kvpolicy.steering.scope import salt

# Keys of a step that are no keys of a request.
_OWN = ("at", "do", "id", "tokens", "hashes", "computed", "block_size", "worker", "show_difference")


def read(stage: Stage, step: Step, name: str) -> tuple[Flow, list[Hashable]]:
    """The request of a step, and the hashes of its blocks."""
    size = stage.pool.block_size
    tokens: list[int] | None = None
    if isinstance(step.get("tokens"), int) and "hashes" in step:
        length = fields.count(step, "tokens")
    else:
        tokens = fields.tokens(step, "tokens")
        length = 0 if tokens is None else len(tokens)
    if tokens is None and "hashes" not in step:
        raise InputFault("request: 'tokens' (a list of token ids) or 'hashes' is missing")
    given = list(fields.names(step, "hashes")) if "hashes" in step else None
    if given is not None:
        length = length if "tokens" in step else len(given) * size
        if not length // size <= len(given) <= -(-length // size):
            raise InputFault(f"request: {length} tokens are not {len(given)} blocks of {size}")
        if len(set(given)) < len(given):
            raise InputFault("request: hashes: one occurs twice; a block hash names everything before the block, too")
    owner = fields.owner(step)
    document = {key: value for key, value in step.items() if key not in _OWN}
    stated = {key: value for key, value in (step.get("owner") or {}).items() if value is not None}
    document.update({"id": name, "owner": stated, "tokens": length, "block_size": size})
    made = read_request(document, "request")
    assert made.owner == owner
    if given is not None:
        return Flow(made, tokens, length, {}, True), list(given)
    assert tokens is not None
    steering = stage.steering
    extra, certain = _pictures(
        {**made.extra, "model": made.model, "salt": salt(steering.policy, made, steering.state, steering.now)}
    )
    flow = Flow(made, tokens, length, extra, False, certain)
    return flow, list(block_hashes(tokens[:certain], size, extra))


def _pictures(extra: dict[str, Any]) -> tuple[dict[str, Any], int | None]:
    """The extra keys with the pictures that are known whole, and the token from which nothing can be named: where the
    first one without length or digest stands."""
    images = list(extra.get("images") or ())
    known = [image for image in images if image.get("length") is not None and image.get("digest")]
    certain = min((image["start"] for image in images if image not in known), default=None)
    return {**extra, "images": [image for image in known if certain is None or image["start"] < certain]}, certain


def read_parts(stage: Stage, step: Step) -> tuple[Span, ...]:
    """The spans under `parts`, read as those of a request are."""
    if step.get("parts") is None:
        return ()
    document = {"id": "parts", "block_size": stage.pool.block_size, "spans": step["parts"]}
    flow = stage.flows.get(fields.text(step, "id"))
    return read_request({**document, "tokens": 0 if flow is None else flow.length}, "finish: parts").spans
