"""A request that has come, as far as claims are concerned: what it shows of its owner's past is read from this."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass

from kvpolicy.blocks import Layout
from kvpolicy.request import Request


@dataclass(frozen=True, slots=True)
class Arrival:
    """layout: of its spans. hashes: all its blocks'. head: of its chain. waits: the requests, by id, whose answers made
    the tool calls of its owner that are open; None among them: not known whose. aside: its owner waits for a tool, and
    this request neither carries the result nor goes on where the answer that called ended."""

    request: Request
    layout: Layout
    hashes: Sequence[Hashable]
    head: Hashable
    waits: Collection[str | None] = ()
    aside: bool = False
