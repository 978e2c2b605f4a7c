"""Where a vLLM request carries what kvpolicy says of it; `kvpolicy.channel.payload` reads it.

The same object P in all of them: body field `kv_transfer_params: {"kvpolicy": P}`, body field `vllm_xargs:
{"kvpolicy": "<P as JSON text>"}`, or an action `kvpolicy.claims` of `Request.kv_hints`.
"""

from __future__ import annotations

from typing import Any

from kvpolicy.channel.payload import KEY

ACTION = "kvpolicy.claims"


def carried_by(request: Any) -> Any:
    """The object P that a vLLM `Request` carries, as it came; None where it carries none. Cheap where there is none."""
    params = request.kv_transfer_params
    if params is not None and (told := params.get(KEY)) is not None:
        return told
    sampling = request.sampling_params
    extra = None if sampling is None else sampling.extra_args
    if extra is not None and (told := extra.get(KEY)) is not None:
        return told
    hints = getattr(request, "kv_hints", None)
    if hints is not None:
        for action in hints.actions:
            if action.action_type == ACTION and str(action.action_version).split(".")[0] == "1":
                return action.payload
    return None
