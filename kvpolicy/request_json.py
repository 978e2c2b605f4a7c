"""Requests and run states as JSON: the border where pydantic checks what others wrote.

Imported only where such a document is read, because pydantic takes long to load. Every fault is one line that names
the document and the key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kvpolicy import words
from kvpolicy.assumed import Assumption, assume
from kvpolicy.blocks import lay_out
from kvpolicy.faults import InputFault
from kvpolicy.request import Owner, Request, Span

LARGEST_DOCUMENT = 64 << 20  # bytes; a request is kilobytes
STDIN = "-"
MOST_BLOCKS = 200_000  # of one request: every block is a row of the answer
MOST_SPANS = 100_000  # likewise

Text = Annotated[str, Field(max_length=1024)]
_Count = Annotated[int, Field(ge=0, le=1 << 40)]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class _Owner(_Strict):
    tenant: Text = "default"
    session: Text | None = None
    run: Text | None = None
    agent: Text | None = None
    branch: Text | None = None
    parent: Text | None = None


class _Span(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")
    kind: Text
    start: _Count
    end: _Count | None = None


class _Image(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")
    start: _Count
    length: _Count | None = None
    digest: str | None = None


class _Extra(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")
    lora: str | None = None
    salt: str | None = None
    images: list[_Image] = []


class _Request(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")
    id: Text
    owner: _Owner = _Owner()
    model: Text | None = None
    block_size: Annotated[int, Field(ge=1, le=1 << 20)]
    tokens: _Count
    spans: Annotated[list[_Span], Field(max_length=MOST_SPANS)] = []
    extra: _Extra | None = None
    key: Text | None = None


class _Function(_Strict):
    call: str
    value: str | int | float | None
    span: str | int | None = None


class _State(_Strict):
    events: list[dict[str, Any]] = []
    functions: list[_Function] = []
    workflow: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class StateFile:
    """A run state as a document: events as they were written, functions, and the workflow's graph."""

    events: tuple[Mapping[str, object], ...] = ()
    functions: tuple[Assumption, ...] = ()
    workflow: Mapping[str, object] | None = None


def load_json(path: str) -> object:
    """The JSON document of a file, or of the standard input for `-`. Raises InputFault with the place of a syntax
    fault; OSError passes."""
    import json
    import sys

    if path == STDIN:
        path, raw = "<standard input>", sys.stdin.buffer.read(LARGEST_DOCUMENT + 1)
    else:
        with Path(path).open("rb") as file:
            raw = file.read(LARGEST_DOCUMENT + 1)  # a device has no size to ask for, and no end
    if len(raw) > LARGEST_DOCUMENT:
        raise InputFault(f"{path}: larger than {LARGEST_DOCUMENT >> 20} MiB")
    if not raw.strip():
        raise InputFault(f"{path}: empty; a JSON object is needed")
    try:
        return json.loads(raw, parse_constant=_no_number)
    except json.JSONDecodeError as fault:
        raise InputFault(f"{path}:{fault.lineno}:{fault.colno}: not JSON: {fault.msg}") from None
    except (UnicodeDecodeError, RecursionError, ValueError):
        raise InputFault(f"{path}: not JSON text") from None


def _no_number(word: str) -> float:
    raise ValueError(f"{word} is no JSON number")


def read_request(document: object, name: str = "request") -> Request:
    """The request of a document (see `kvp plan`). name: what faults call the document.

    Static attributes stand at top level, a span's own in the span. Raises InputFault naming the key.
    """
    model = checked(_Request, document, name)
    if model.tokens > MOST_BLOCKS * model.block_size:
        raise InputFault(f"{name}: tokens: {model.tokens} tokens are more than {MOST_BLOCKS} blocks")
    attributes = _attributes(model.model_extra or {}, name)
    spans = tuple(
        Span(span.kind, span.start, span.end, _own(span.model_extra or {}, f"{name}: spans[{i}]"))
        for i, span in enumerate(model.spans)
    )
    extra = {} if model.extra is None else {k: v for k, v in model.extra.model_dump().items() if v not in (None, [])}
    owner = Owner(**model.owner.model_dump())
    last_step = attributes.get("last_step") is True
    request = Request(
        model.id,
        owner,
        model.tokens,
        model.block_size,
        spans,
        model.model,
        attributes,
        extra,
        model.key,
        last_step,
    )
    try:
        lay_out(request)
    except InputFault as fault:
        raise InputFault(f"{name}: {fault}") from None
    return request


def read_state(document: object, name: str = "state") -> StateFile:
    """The run state of a document. Raises InputFault naming the key."""
    model = checked(_State, document, name)
    functions = []
    for index, row in enumerate(model.functions):
        try:
            functions.append(assume(row.call, row.value, row.span))
        except InputFault as fault:
            raise InputFault(f"{name}: functions[{index}]: {fault}") from None
    return StateFile(tuple(model.events), tuple(functions), model.workflow)


_M = TypeVar("_M", bound=BaseModel)


def checked(model: type[_M], document: object, name: str) -> _M:
    """The document as a model, or its faults in one line: all that is missing, and the first of the others."""
    if not isinstance(document, Mapping):
        raise InputFault(f"{name}: a JSON object is needed, not {_json_type(document)}")
    try:
        return model.model_validate(document)
    except ValidationError as fault:
        faults = fault.errors(include_url=False)
        told = _missing([_key(one["loc"]) for one in faults if one["type"] == "missing"])
        told += [f"{_key(one['loc'])}: {_message(one, model)}" for one in faults if one["type"] != "missing"][:1]
        raise InputFault(f"{name}: {'; '.join(told)}") from None


def _missing(keys: list[str]) -> list[str]:
    *most, last = keys or [""]
    if not last:
        return []
    return [f"{', '.join(most)} and {last} are missing" if most else f"{last} is missing"]


def _key(loc: tuple[int | str, ...]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc).lstrip(".")


def _message(fault: Mapping[str, Any], model: type[BaseModel]) -> str:
    if fault["type"] == "model_type":  # its own words name a class of ours
        return f"a JSON object is needed, not {_json_type(fault['input'])}"
    message = str(fault["msg"])
    if fault["type"] != "extra_forbidden":
        return message[0].lower() + message[1:]
    near = get_close_matches(str(fault["loc"][-1]), _keys(model, fault["loc"][:-1]), n=1)
    return "there is no such key" + (f"; did you mean {near[0]}?" if near else "")


def _keys(model: type[BaseModel], loc: tuple[int | str, ...]) -> list[str]:
    """The keys that a document has at a place; none where the place is no object of ours."""
    for part in loc:
        if isinstance(part, int):
            continue
        field = model.model_fields.get(part)
        inner = None if field is None else field.annotation
        found = [one for one in (inner, *get_args(inner)) if isinstance(one, type) and issubclass(one, BaseModel)]
        if not found:
            return []
        model = found[0]
    return list(model.model_fields)


def _attributes(given: Mapping[str, object], name: str) -> dict[str, object]:
    return {key: _typed(key, value, name, words.STATIC_ATTRIBUTES) for key, value in given.items() if value is not None}


def _own(given: Mapping[str, object], name: str) -> dict[str, object]:
    for key in words.TRUSTED_ATTRIBUTES:
        if key in given:
            raise InputFault(f"{name}.{key}: {key} belongs to the request, a span cannot state it")
    return {key: _typed(key, value, name, words.ATTRIBUTES) for key, value in given.items() if value is not None}


def _typed(key: str, value: object, name: str, table: Mapping[str, str]) -> object:
    """An attribute's value, checked against the word table."""
    if key not in table or key == "tokens":
        near = get_close_matches(key, table, n=1)
        mend = f"did you mean {near[0]}?" if near else f"the attributes are {', '.join(table)}"
        raise InputFault(f"{name}: unknown key '{key}'; {mend}")
    kind = table[key]
    number = isinstance(value, int) and not isinstance(value, bool)
    fits = {
        "string": isinstance(value, str),
        "int": number,
        "number": number or isinstance(value, float),
        "bool": isinstance(value, bool),
        "status": value in words.STATUSES,
    }[kind]
    if not fits:
        named = {"status": f"one of {', '.join(words.STATUSES)}", "bool": "true or false", "int": "a whole number"}
        wanted = named.get(kind, f"a {kind}")
        raise InputFault(f"{name}: {key}: {wanted} is needed, not {_json_type(value)}")
    return value


def _json_type(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "true or false", int: "a number"}
    return "null" if value is None else names.get(type(value), "a number")
