"""Orders that know one thing of the future and nothing else: what an estimate of it could gain at most.

`oracle-tool-times` knows when the caller of a running tool will be back, to the second; of everything else it knows the
time since the last use, and takes it that as much will pass again. The longest wait to come leaves first.
`oracle-session-ends` knows which sessions never call again; what they alone used leaves first, else least recently
used. Ours; no engine can know it. Both run on the radix tree, whose leaves leave from their tail.
"""

from __future__ import annotations

from collections.abc import Hashable

from kvpolicy.simulate.baselines.tree import Key, Node, Order, RadixCache
from kvpolicy.simulate.trace import TOOL_USE, Call

Session = tuple[str, str | None]


def session_of(call: Call) -> Session | None:
    """Tenant and session; None where the trace has none."""
    owner = call.request.owner
    return None if owner.session is None else (owner.tenant, owner.session)


def next_times(calls: list[Call]) -> dict[int, float]:
    """Of each call, by its identity, when the same session calls next, with the same branch and agent."""
    coming: dict[Hashable, float] = {}
    found: dict[int, float] = {}
    for call in reversed(calls):
        owner = call.request.owner
        if owner.session is None:
            continue
        if owner.key in coming:
            found[id(call)] = coming[owner.key]
        coming[owner.key] = call.at
    return found


class ToolTimes(Order):
    """note of a node: when its caller will be back, None where nobody knows."""

    def __init__(self, calls: list[Call]) -> None:
        self._next = next_times(calls)
        self._leaves: dict[Hashable, Node] = {}

    def queue(self, node: Node) -> Hashable:
        """Known or not."""
        return node.note is None

    def place(self, node: Node) -> Key:
        """The latest return first; of the others, the one used longest ago."""
        return (node.used, -node.start) if node.note is None else (-node.note, -node.start)

    def score(self, node: Node, now: float) -> Key:
        """The longest wait leaves."""
        wait = now - node.used_at if node.note is None else node.note - now
        return (-wait, node.used)

    def served(self, cache: RadixCache, call: Call, path: list[Node]) -> None:
        """The caller's return is known where a tool runs; what it did not come back to is nobody's any more."""
        owner = call.request.owner.key
        left, used = self._leaves.pop(owner, None), path[-1].used if path else 0
        while left is not None and left.parent is not None and left.used != used:
            left.note = None
            cache.put(left)
            left = left.parent
        back = self._next.get(id(call)) if call.answer.stop == TOOL_USE else None
        for node in path:
            node.note = back
        if path:
            self._leaves[owner] = path[-1]


class SessionEnds(Order):
    """note of a node: whether the session that used it last calls again."""

    def __init__(self, calls: list[Call]) -> None:
        last = {session: id(call) for call in calls if (session := session_of(call)) is not None}
        self._last = set(last.values())

    def place(self, node: Node) -> Key:
        """What is over first, then the least recently used."""
        return (bool(node.note), node.used, -node.start)

    def served(self, cache: RadixCache, call: Call, path: list[Node]) -> None:
        """Whether more is to come."""
        for node in path:
            node.note = id(call) not in self._last
