"""What a caller in Python hands over, read and checked before anything is done: requests, workflows, token ids.

Used by the public face (`embedded`, `runs`). A plan that breaks costs only the hints; a call that cannot be meant is
the caller's slip, and is answered with an InputFault that says what to write.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from kvpolicy import words
from kvpolicy.blocks import lay_out
from kvpolicy.client.graphs import readable
from kvpolicy.faults import InputFault
from kvpolicy.language.spelling import nearest
from kvpolicy.policy.policy import Policy
from kvpolicy.request import Owner, Request, Span
from kvpolicy.workflow.graph import Graph

_OWNER = tuple(field.name for field in fields(Owner))


def asked_request(request: Request | Mapping[str, Any], block_size: int) -> Request:
    """A request, or the one that its JSON form states, checked as `check_request` does."""
    if isinstance(request, Request):
        return check_request(request, block_size)
    if not isinstance(request, Mapping):
        raise InputFault(f"a Request or its JSON form is needed, not one of type {type(request).__name__}")
    from kvpolicy.request_json import read_request  # pydantic is slow to load

    return check_request(read_request({"block_size": block_size, **request}), block_size)


def asked_graph(workflow: object, policy: Policy | None) -> Graph:
    """The graph of a workflow that `policy` has by that name, or that the caller gives itself (see `Engine.run`).
    Raises InputFault with the names there are, and for what is no graph or has a loop without an exit."""
    if not isinstance(workflow, str):
        return Graph.sound(readable(workflow))
    if policy is None:
        raise InputFault(f"there is no workflow '{workflow}', as the engine has no policy; give the graph itself")
    blocks = {block.name: block for block in policy.workflows}
    if workflow in blocks:
        return Graph.build(blocks[workflow], workflow)
    near = nearest(workflow, blocks)
    mend = f"did you mean '{near}'?" if near else f"it has {', '.join(blocks)}" if blocks else "it has none"
    raise InputFault(f"the policy has no workflow '{workflow}'; {mend}")


def check_request(request: Request, block_size: int) -> Request:
    """The request itself. block_size: the engine's, in tokens. Raises InputFault for an owner, a length, a span or an
    attribute that cannot be meant, and for blocks of another size than the engine's."""
    if not isinstance(request.id, str):
        raise InputFault(f"id: a string is needed, not {_shown(request.id)}")
    check_owner(request.owner)
    if not _whole(request.tokens):
        length = len(request.tokens) if isinstance(request.tokens, Sequence) else None
        mend = "the token ids go to `engine.request` beside it" if length is None else f"write {length}"
        raise InputFault(f"tokens: the number of tokens is needed, not {_shown(request.tokens)}; {mend}")
    if request.block_size != block_size:
        raise InputFault(f"block_size: the engine's blocks have {block_size} tokens, not {_shown(request.block_size)}")
    if isinstance(request.spans, Span | str) or not isinstance(request.spans, Sequence):
        raise InputFault(f"spans: a sequence of Span is needed, not {_shown(request.spans)}")
    for index, span in enumerate(request.spans):
        _check_span(span, f"span {index}")
    check_attributes(request.attributes, "request")
    lay_out(request)
    return request


def check_owner(owner: object) -> None:
    """Refuse what is no Owner, or one whose fields are no strings."""
    if not isinstance(owner, Owner):
        raise InputFault(f"owner: an Owner is needed, such as Owner(session='s1'), not {_shown(owner)}")
    for name in _OWNER:
        value = getattr(owner, name)
        if not isinstance(value, str) and (value is not None or name == "tenant"):
            raise InputFault(f"owner: {name}: a string is needed, not {_shown(value)}")


def check_hashes(hashes: object, request: Request) -> None:
    """Refuse what are not the hashes of the request's blocks: one each, the partial last one with or without."""
    if not hasattr(hashes, "__len__") or isinstance(hashes, str | bytes | Mapping):
        raise InputFault(f"hashes: a sequence of block hashes is needed, not {_shown(hashes)}")
    full, count = request.tokens // request.block_size, len(hashes)
    if not full <= count <= -(-request.tokens // request.block_size):
        raise InputFault(
            f"hashes: {request.tokens} tokens are {full} full blocks of {request.block_size}, and {count} hashes were "
            "given"
        )


def _check_span(span: object, where: str) -> None:
    if not isinstance(span, Span):
        raise InputFault(f"{where}: a Span is needed, such as Span('system', 0, 40), not {_shown(span)}")
    if not isinstance(span.kind, str):
        raise InputFault(f"{where}: its kind is a string, not {_shown(span.kind)}")
    if not _whole(span.start) or not (span.end is None or _whole(span.end)):
        raise InputFault(f"{where}: start and end are whole numbers of tokens, not {_shown(span.start)} and "
                         f"{_shown(span.end)}")  # fmt: skip
    check_attributes(span.attributes, where)


def check_attributes(attributes: Mapping[str, object], where: str) -> None:
    """Refuse attributes that no selector can name, with the nearest that one can."""
    for name in attributes:
        if name not in words.ATTRIBUTES:
            near = nearest(name, words.ATTRIBUTES) if isinstance(name, str) else None
            mend = f"did you mean `{near}`?" if near else f"they are {', '.join(words.ATTRIBUTES)}"
            raise InputFault(f"{where}: there is no attribute '{name}'; {mend}")


def check_tokens(tokens: object) -> None:
    """Refuse what is no sequence of token ids; None: hashes stand in for them."""
    if tokens is not None and (not hasattr(tokens, "__len__") or isinstance(tokens, str | bytes | Mapping)):
        raise InputFault(f"tokens: a sequence of token ids is needed, such as [17, 4, 81], not {_shown(tokens)}")


def check_tool_calls(calls: object) -> None:
    """Refuse what is no list of tool names or (name, call id)."""
    if isinstance(calls, str):
        raise InputFault(f"tool_calls: a list is needed; write tool_calls=[{calls!r}]")
    if not isinstance(calls, Iterable) or isinstance(calls, Mapping):
        raise InputFault(f"tool_calls: a list of names, or of (name, call id), is needed, not {_shown(calls)}")
    for call in calls:
        pair = (
            isinstance(call, tuple) and len(call) == 2 and all(part is None or isinstance(part, str) for part in call)
        )
        if not isinstance(call, str) and not pair:
            raise InputFault(f"tool_calls: a name or (name, call id) is needed, not {_shown(call)}")


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _shown(value: object) -> str:
    plain = value is None or isinstance(value, str | int | float)
    return repr(value)[:60] if plain else f"a {type(value).__name__}"
