"""A question to the server, with what is answered in-process where it does not answer in time."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from kvpolicy.store.wire import Command

T = TypeVar("T")


class Unanswered(Exception):
    """The server was not asked, or could not answer."""


@dataclass(slots=True, eq=False)
class Ask(Generic[T]):
    """command: what the server is asked. read: its answer as a result; local: the in-process answer."""

    command: Command
    read: Callable[[Any], T]
    local: Callable[[], T]
    future: Future[Any] = field(default_factory=Future)
