"""Which owner a request belongs to, and what its prompt says of what happened since its owner's last one.

Reads a conversation and what its client said; `decisions` feeds the run state with the answer. Where no identifier
comes, a request whose prompt goes through the whole of an earlier one is that chain's next; an earlier state of a chain
continued again is a chain of its own. No text is kept: digests, bounded in number, the longest silent go first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from secrets import token_hex
from typing import Any

from kvpolicy.request import Owner
from kvpolicy.service.meaning.annotations import Context
from kvpolicy.service.meaning.dialects import Conversation

MOST_CHAINS = 100_000
MOST_ENDS = 8  # of a chain: requests side by side, each with its answer
SILENT_S = 24 * 3600.0
NAMELESS = "~"  # begins the session of a chain that has no name; no client can state one that begins so
ONCE = "SESSION_ID_NEVER_REPEATS"
ONCE_AFTER = 50  # sessions of a tenant, each seen once, while their prompts go on under other names


@dataclass(slots=True)
class Chain:
    """One owner's requests with one model and one head. tips: digests of the newest prompt, with its answer where that
    was seen (clients send it back with or without its reasoning); ends: those of the last prompts with their answers;
    units: how many it had. calls: tools that its last
    answer asked for, by call id. seen: seconds."""

    owner: Owner
    model: str | None
    head: bytes
    tips: tuple[bytes, ...] = ()
    ends: tuple[bytes, ...] = ()
    units: int = 0
    seen: float = 0.0
    requests: int = 0
    calls: dict[str, str | None] = field(default_factory=dict)
    tools: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Arrived:
    """owner: whose request it is. results: call ids whose results it carries that were open. side: its owner waits for
    a tool, in another chain, or in this one and the prompt neither brings a result nor goes on. compacted: its chain's
    history was rewritten to something shorter. diverged: units that agree with the chain's last prompt, where that was
    not reproduced. goes_on: it goes through one of the chain's last prompts. new: a chain seen for the first time.
    warned: codes to answer with."""

    owner: Owner
    chain: Chain
    results: tuple[str, ...] = ()
    compacted: bool = False
    diverged: int | None = None
    new: bool = False
    warned: tuple[str, ...] = ()
    side: bool = False
    goes_on: bool = False


class Sessions:
    """Every chain that is remembered. most: how many.

    # INVARIANT: no two processes give chains without a name the same one: replicas share a run state, and a salt that a
    # session shares is made from its name.
    """

    def __init__(self, most: int = MOST_CHAINS) -> None:
        self._own = NAMELESS + token_hex(6)  # how names begin that are given here
        self._chains: OrderedDict[tuple[Any, ...], Chain] = OrderedDict()
        self._tips: OrderedDict[tuple[str, bytes], Chain] = OrderedDict()
        self._most = most
        self._numbers = count(1)
        self._named: dict[str, list[int]] = {}
        self._waiting: OrderedDict[Owner, Chain] = OrderedDict()  # chains whose last answer asked for tools

    def __len__(self) -> int:
        return len(self._chains)

    def arrive(self, tenant: str, context: Context, conversation: Conversation, now: float) -> Arrived:
        """A request came. The tenant's name is the authenticated one."""
        chain, new, warned = self._chain(tenant, context, conversation)
        digests = [unit.digest for unit in conversation.units]
        waiting = self._waiting.get(chain.owner, chain)
        asked = chain.calls or waiting.calls
        results = tuple(
            call for unit in conversation.units for call in unit.answers if call is not None and call in asked
        )
        if results and waiting is not chain:
            del self._waiting[chain.owner]  # its work goes on here, under another head
        goes_on = not {*chain.tips, *chain.ends}.isdisjoint(digests)
        side = waiting is not chain or (bool(chain.calls) and not results and not goes_on)
        compacted, diverged = False, None
        if not new and chain.tips and chain.head == conversation.head and not set(chain.tips) & set(digests):
            compacted = len(digests) < chain.units and not side
            diverged = self._agreeing(chain, conversation)
        again = not new and chain.tips == tuple(digests[-1:])  # an unanswered prompt, sent once more: the same turn
        chain.seen, chain.requests = now, chain.requests + (not again)
        chain.model, chain.head, chain.units = conversation.model, conversation.head, len(digests)
        chain.tools = conversation.tool_digests
        self._tip(tenant, chain, digests[-1:])
        return Arrived(chain.owner, chain, results, compacted, diverged, new, warned, side, goes_on)

    def answered(
        self, tenant: str, chain: Chain, digests: Sequence[bytes], calls: Mapping[str, str | None], now: float
    ) -> None:
        """An answer is done. digests: of the prompt with the answer behind it, as the next request may send it; none
        where that is not known. calls: call ids with their tools."""
        chain.seen = now
        chain.calls = dict(calls)
        if calls:
            self._waiting[chain.owner] = chain
            self._waiting.move_to_end(chain.owner)
            while len(self._waiting) > self._most:
                self._waiting.popitem(last=False)
        elif self._waiting.get(chain.owner) is chain:
            del self._waiting[chain.owner]
        if digests:
            chain.units += 1
            chain.ends = (*chain.ends, *digests)[-MOST_ENDS:]
            self._tip(tenant, chain, digests)

    def forget(self, now: float) -> int:
        """Drop chains of which nothing was heard for a day. Returns how many."""
        gone = 0
        while self._chains:
            key, chain = next(iter(self._chains.items()))
            if now - chain.seen < SILENT_S:
                break
            del self._chains[key]
            gone += 1
        while self._tips and next(iter(self._tips.values())).seen + SILENT_S <= now:
            self._tips.popitem(last=False)
        return gone

    # --- inside ---------------------------------------------------------------------------------------------------

    def _chain(self, tenant: str, context: Context, conversation: Conversation) -> tuple[Chain, bool, tuple[str, ...]]:
        warned: tuple[str, ...] = ()
        if context.session is not None and not context.session.startswith(NAMELESS):
            owner = Owner(tenant, context.session, context.run, context.agent, context.branch, context.parent)
            warned = self._once(tenant, owner, conversation)
        else:
            found = self._continued(tenant, conversation)
            if found is not None:
                return found, False, ()
            name = f"{self._own}-{next(self._numbers):x}"
            owner = Owner(tenant, name, context.run, context.agent, context.branch, context.parent)
        key = (owner, conversation.model, conversation.head)
        chain = self._chains.get(key)
        if chain is not None:
            self._chains.move_to_end(key)
            return chain, False, warned
        chain = Chain(owner, conversation.model, conversation.head)
        self._chains[key] = chain
        while len(self._chains) > self._most:
            self._chains.popitem(last=False)
        return chain, True, warned

    def _continued(self, tenant: str, conversation: Conversation) -> Chain | None:
        """The nameless chain whose newest prompt this one goes through (or is: a retry)."""
        for unit in reversed(conversation.units):
            chain = self._tips.get((tenant, unit.digest))
            if chain is not None and chain.model == conversation.model:
                return chain if unit.digest in chain.tips else None
        return None

    def _agreeing(self, chain: Chain, conversation: Conversation) -> int:
        """Leading units that an earlier prompt of the chain had, too, as far as that is remembered."""
        for place in range(len(conversation.units), 0, -1):
            if self._tips.get((chain.owner.tenant, conversation.units[place - 1].digest)) is chain:
                return place
        return 0

    def _tip(self, tenant: str, chain: Chain, digests: Sequence[bytes]) -> None:
        chain.tips = tuple(digests)
        for digest in digests:
            self._tips[tenant, digest] = chain
            self._tips.move_to_end((tenant, digest))
        while len(self._tips) > 2 * self._most:
            self._tips.popitem(last=False)

    def _once(self, tenant: str, owner: Owner, conversation: Conversation) -> tuple[str, ...]:
        """Whether the tenant's session names look like request ids: prompts go on, their names do not."""
        counts = self._named.setdefault(tenant, [0, 0])  # new names, and those among them that go on another's prompt
        if (owner, conversation.model, conversation.head) in self._chains:
            counts[0] = counts[1] = 0
            return ()
        counts[0] += 1
        for unit in conversation.units:
            chain = self._tips.get((tenant, unit.digest))
            if chain is not None and chain.owner.session != owner.session and unit.kind not in ("system", "tools"):
                counts[1] += 1
                break
        return (ONCE,) if counts[0] >= ONCE_AFTER and counts[1] * 2 >= counts[0] else ()
