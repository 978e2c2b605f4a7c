"""Owners of claims, and the chains of requests by which the ledger knows what of an owner's past is dead.

A chain is an owner's requests with one model and one head. Kept by the ledger; an owner without lines is forgotten.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from kvpolicy.blocks import Layout
from kvpolicy.claims.line import Line
from kvpolicy.request import Owner, OwnerKey, Request

_HEAD_KINDS = frozenset({"system", "tools"})


class Chain:
    """lines: the newest first in the list is the one that the chain's requests extend; others are left from requests
    that ran at the same time. foreign: requests of the owner with another head since. awaits: a tool call that an
    answer of this chain made is open. compacted: the owner said that it rewrites its history."""

    __slots__ = ("awaits", "compacted", "foreign", "lines", "running")

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.foreign = 0
        self.running = 0
        self.awaits = False
        self.compacted = False


class Holder:
    """One owner: chains by head, lines by call (`manual`), and since when it is protected (a turn of the ledger's
    count, None while nothing is). index: for a nameless owner, line by the hash of each claim's end. latest: the head
    of its newest request. lingers: a hold whose event has come lasts until the owner's next request has touched the
    blocks."""

    __slots__ = ("chains", "index", "key", "latest", "lingers", "manual", "nameless", "owner", "protecting", "since")

    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self.key: OwnerKey = owner.key
        self.nameless = owner.session is None and owner.run is None and owner.agent is None and owner.branch is None
        self.chains: dict[Hashable, Chain] = {}
        self.manual: dict[Hashable, Line] = {}
        self.index: dict[Hashable, Line] = {}
        self.protecting: dict[Line, None] = {}
        self.since: int | None = None
        self.latest: Hashable = None
        self.lingers = False

    def lines(self) -> list[Line]:
        """All its lines, those of calls last."""
        found: list[Line] = []
        for chain in self.chains.values():
            found += chain.lines
        found += self.manual.values()
        return found

    def agrees(self, fields: Mapping[str, object]) -> bool:
        """Whether it has every owner field that `fields` states; None states that it has none."""
        owner = self.owner
        return all(getattr(owner, name) == value for name, value in fields.items())


def head_of(request: Request, layout: Layout, hashes: Sequence[Hashable]) -> Hashable:
    """What a request's chain is known by: model and the blocks to the end of system and tools, else the first one; or
    the name that the request has for them."""
    if request.head is not None:
        return (request.model, request.head)
    end = max([end or 0 for kind, end in zip(layout.kinds, layout.ends, strict=True) if kind in _HEAD_KINDS], default=0)
    length = min(max(end // request.block_size, 1), len(hashes))
    return (request.model, length, hashes[length - 1] if length else None)


def carries_result(layout: Layout, reproduced: int) -> bool:
    """Whether a request brings a tool's result behind its first `reproduced` blocks."""
    start = reproduced * layout.block_size
    if "tool_result" not in layout.kinds:
        return False
    last = len(layout.kinds) - 1 - layout.kinds[::-1].index("tool_result")
    return (layout.ends[last] or 0) > start
