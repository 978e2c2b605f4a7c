"""Where this thread or task is: a `Scope` in a ContextVar, so runs at once never mix.

Set by runs and their steps (`kvpolicy.runs`), by `kvpolicy.spans`, and by adapters of frameworks, which may also add
what they know at the moment of a call (`sources`). Read by `transport` for each LLM call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar, Token
from dataclasses import dataclass, field, fields, replace
from typing import Any

from kvpolicy.client.once import warn_once

MESSAGE, TOKEN, TOOLS = "message", "token", "tools"
END = -1  # behind the last message


@dataclass(frozen=True, slots=True)
class Mark:
    """A run of the prompt of one kind: [start, end) in messages, or in tokens with `unit="token"`; -1 is the end.
    unit="tools": the tool definitions. part: of one message alone. attributes: `name tool branch agent node`, as
    pairs (see `mark`)."""

    kind: str
    start: int = 0
    end: int = END
    unit: str = MESSAGE
    part: int | None = None
    attributes: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Scope:
    """What is said with an LLM call; None: not said. turn, depth: counts. marks: spans of its prompt."""

    session: str | None = None
    run: str | None = None
    workflow: str | None = None
    node: str | None = None
    agent: str | None = None
    branch: str | None = None
    parent: str | None = None
    turn: int | None = None
    depth: int | None = None
    last_step: bool | None = None
    final: bool | None = None
    marks: tuple[Mark, ...] = field(default=())


NOWHERE = Scope()
FIELDS = frozenset(each.name for each in fields(Scope))
_here: ContextVar[Scope] = ContextVar("kvpolicy_scope", default=NOWHERE)

Source = Callable[[], Mapping[str, Any] | None]
sources: list[Source] = []  # of adapters: fields of a Scope as known at this moment, or None


def mark(kind: str, start: int = 0, end: int = END, *, unit: str = MESSAGE, part: int | None = None, **of: str) -> Mark:
    """A span of the prompt, for `kvpolicy.spans`: `mark("document", 1, 3, name="repo_map")`."""
    return Mark(kind, start, end, unit, part, tuple(sorted(of.items())))


def current() -> Scope:
    """Where this thread or task is, with what the adapters know. Never raises."""
    scope = _here.get()
    for source in sources:
        try:
            told = source()
            if told:
                scope = replace(scope, **{name: value for name, value in told.items() if value is not None})
        except Exception as fault:  # an adapter's slip costs its annotation
            warn_once(f"source {source!r}", f"an adapter could not say where it is: {fault!r}")
    return scope


def placed() -> Scope:
    """Where this thread or task is, without what the adapters know."""
    return _here.get()


def enter(scope: Scope) -> Token[Scope]:
    """This thread or task is there from now on; the token leads back."""
    return _here.set(scope)


def inside(**more: Any) -> Token[Scope]:
    """The same with more fields said."""
    return _here.set(replace(_here.get(), **more))


def leave(token: Token[Scope]) -> None:
    """Back. In another context than it was entered in (a generator closed elsewhere) there is nothing to go back to."""
    with suppress(ValueError, RuntimeError):
        _here.reset(token)
