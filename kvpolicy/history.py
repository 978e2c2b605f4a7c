"""What a request did not send again: where it parts from its owner's earlier prompts, and what that means.

Fed with every request by `kvp replay` (and whoever else sees prompts); says what an author should know: a clock or a
nonce in the head of the prompt, tools in another order, a history that was rewritten. It decides nothing: what is
dead by that is for `claims`. Text is not kept: tokens as they came, bounded in number.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from kvpolicy.blocks import Layout, lay_out
from kvpolicy.faults import Notice
from kvpolicy.request import Owner, Request

MOST_TOKENS = 4_000_000  # kept over all owners, in tokens or block hashes; the owners longest silent go first
PROMPTS = 4  # of one owner and model: side requests and alternating prompts are usual
ALIKE = 0.5  # a head that agrees with an earlier one in less than this share is another head, not a volatile one
ALIKE_NAMELESS = 0.9  # where nobody says who asks, two users are more likely than a change
_HEAD_KINDS = ("system", "tools")


@dataclass(slots=True)
class _Prompt:
    """tokens: of the prompt and of what was generated behind it, where they are known. hashes: of its blocks."""

    id: str
    layout: Layout
    tokens: array[int] | None
    hashes: Sequence[Hashable]

    @property
    def cost(self) -> int:
        return len(self.hashes) if self.tokens is None else len(self.tokens)


class History:
    """Earlier prompts by owner and model."""

    def __init__(self, most_tokens: int = MOST_TOKENS) -> None:
        self._prompts: OrderedDict[Hashable, list[_Prompt]] = OrderedDict()
        self._most = most_tokens
        self._kept = 0

    def compare(
        self,
        request: Request,
        hashes: Sequence[Hashable],
        tokens: Sequence[int] | None = None,
        *,
        show: bool = False,
    ) -> list[Notice]:
        """Notices about a request that has just come; it is an earlier prompt from now on. tokens: of its prompt, where
        they are known. show: put the tokens around the place into the notice (for the tenant's own eyes alone)."""
        new = _Prompt(request.id, lay_out(request), None if tokens is None else array("q", tokens), hashes)
        key = (_named(request.owner) or request.owner.tenant, request.model)
        earlier = self._prompts.setdefault(key, [])
        self._prompts.move_to_end(key)
        notices: list[Notice] = []
        shared = [(*_common(prompt, new), prompt) for prompt in earlier]
        common = max((length for length, _, _ in shared), default=-1)
        closest = [(prompt, exact) for length, exact, prompt in shared if length == common]
        gone_on = next((prompt for prompt, _ in closest if common >= _length(prompt)), None)
        if gone_on is not None:
            self._drop(earlier, gone_on)  # the new one goes on where it ended
        elif common < _length(new):
            for prompt, exact in closest:
                notice = _judge(prompt, new, common, exact, _named(request.owner) is not None)
                if notice is not None:
                    if show and exact:
                        notice.details.update(_around(prompt, new, common))
                    notices.append(notice)
                    break
        earlier.insert(0, new)
        self._kept += new.cost
        while len(earlier) > PROMPTS:
            self._drop(earlier, earlier[-1])
        while self._kept > self._most and len(self._prompts) > 1:
            for prompt in self._prompts.popitem(last=False)[1]:
                self._kept -= prompt.cost
        return notices

    def grew(self, request: Request, tokens: Sequence[int]) -> None:
        """A running request has generated these tokens."""
        key = (_named(request.owner) or request.owner.tenant, request.model)
        for prompt in self._prompts.get(key, ()):
            if prompt.id == request.id and prompt.tokens is not None:
                prompt.tokens.extend(tokens)
                self._kept += len(tokens)

    def _drop(self, earlier: list[_Prompt], prompt: _Prompt) -> None:
        earlier.remove(prompt)
        self._kept -= prompt.cost


def _named(owner: Owner) -> Hashable | None:
    """The owner, if anything tells it from others of its tenant."""
    key = (owner.tenant, owner.session, owner.run, owner.agent, owner.branch)
    return key if any(key[1:]) else None


def _length(prompt: _Prompt) -> int:
    return prompt.layout.tokens if prompt.tokens is None else len(prompt.tokens)


def _common(old: _Prompt, new: _Prompt) -> tuple[int, bool]:
    """Leading tokens that two prompts share, and whether that is exact or only as far as their common blocks show."""
    if old.tokens is not None and new.tokens is not None:
        return _same(old.tokens, new.tokens), True
    same = _same(list(old.hashes), list(new.hashes))
    if same == min(len(old.hashes), len(new.hashes)):  # a partial last block has no hash: nothing is known of it
        return max(same * new.layout.block_size, min(_length(old), _length(new))), False
    return same * new.layout.block_size, False


def _same(one: Sequence[object], two: Sequence[object]) -> int:
    """How many leading members are equal; by halving, so that slices are compared as wholes."""
    low, high = 0, min(len(one), len(two))
    if one[:high] == two[:high]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if one[low:middle] == two[low:middle]:
            low = middle
        else:
            high = middle
    return low


def _judge(old: _Prompt, new: _Prompt, at: int, exact: bool, named: bool) -> Notice | None:
    """What it means that `new` parts from `old` at token `at`."""
    span, before = _span_at(new.layout, at), _span_at(old.layout, at)
    kind = new.layout.spans[span].kind
    head = kind in _HEAD_KINDS and old.layout.spans[before].kind == kind
    details: dict[str, object] = {
        "span": kind,
        "span_index": span,
        "was": old.layout.spans[before].kind,
        "first_differing_token": at,
        "exact": exact,
    }
    if head and kind == "tools" and _reordered(old, new):
        return Notice("TOOL_ORDER_CHANGED", f"the same tools in another order from token {at} on; sort them", details)
    if head:
        if not _alike(old, before, new, span, ALIKE if named else ALIKE_NAMELESS):
            return None  # another head: a side request, or another user
        text = f"the {kind} part changes from request to request at token {at}; nothing behind it can be used again"
        return Notice("VOLATILE_PREFIX", text, details)
    if not named or at < new.layout.block_size:
        return None
    text = f"the history was rewritten at token {at} ({kind}); what stood behind it there is of no more use"
    return Notice("HISTORY_DIVERGED", text, details)


def _span_at(layout: Layout, token: int) -> int:
    for index in layout.order:
        if layout.spans[index].start <= token and (layout.spans[index].end is None or token < layout.end(index)):
            return index
    return layout.order[-1] if layout.order else 0


def _alike(old: _Prompt, before: int, new: _Prompt, span: int, enough: float) -> bool:
    """Whether two heads agree but for a place: by what is equal at their beginning and at their end."""
    first, second = old.layout.spans[before], new.layout.spans[span]
    if old.tokens is None or new.tokens is None:
        return (first.start, first.end) == (second.start, second.end)
    one = old.tokens[first.start : old.layout.end(before)]
    two = new.tokens[second.start : new.layout.end(span)]
    start = _same(one, two)
    end = _same(one[start:][::-1], two[start:][::-1])
    return start + end >= enough * max(len(one), len(two))


def _reordered(old: _Prompt, new: _Prompt) -> bool:
    """Whether the tools are the same ones in another order."""
    one, two = _tools(old), _tools(new)
    if len(one) == 1 == len(two) and old.tokens is not None and new.tokens is not None:
        return sorted(one[0][1]) == sorted(two[0][1])
    return one != two and sorted(one, key=repr) == sorted(two, key=repr)


def _tools(prompt: _Prompt) -> list[tuple[object, tuple[int, ...]]]:
    """(name, tokens) of every span of tool definitions."""
    layout, found = prompt.layout, []
    for index in layout.order:
        span = layout.spans[index]
        if span.kind == "tools":
            own = () if prompt.tokens is None else tuple(prompt.tokens[span.start : layout.end(index)])
            found.append((span.attributes.get("name") or span.attributes.get("tool"), own))
    return found


def _around(old: _Prompt, new: _Prompt, at: int) -> dict[str, object]:
    assert old.tokens is not None and new.tokens is not None
    first, last = max(0, at - 8), at + 8
    return {"old_tokens": old.tokens[first:last].tolist(), "new_tokens": new.tokens[first:last].tolist()}
