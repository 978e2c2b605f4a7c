"""The prefix doctor: where a session's prompt stops being the one before, and which part of it does that.

A stage that compares the digests of a chain's units from turn to turn, and keyed fingerprints of its head: no text is
kept. Where the engine's tokens are known, the notice says which token is the first to differ; `GET /v1/doctor` shows a
tenant its own notices. The text around the place is shown only in the answer to its own tenant, from its own request,
where that asks for it (`x-kvp-doctor: show`). It never edits a prompt.
"""

from __future__ import annotations

from array import array
from collections import Counter, OrderedDict
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any
from weakref import WeakValueDictionary

from kvpolicy.service.exchange import Exchange
from kvpolicy.service.isolation import digest_key
from kvpolicy.service.meaning.dialects import Conversation, Unit
from kvpolicy.service.meaning.offsets import Places
from kvpolicy.service.seen import Seen

VOLATILE, TOOL_ORDER, DIVERGED = "VOLATILE_PREFIX", "TOOL_ORDER_CHANGED", "HISTORY_DIVERGED"
MOST_CHAINS = 10_000
MOST_WAITING = 64  # of one prompt
AROUND = 24  # characters each side that a tenant may ask for
PIECE = 8
MOST_TEXT = 16_384
MOST_TOKENS = 1024  # of a prompt's beginning that are compared one by one
HEAD = ("system", "tools")
ASKED = "x-kvp-doctor"

_Key = tuple[str, str | None, str | None, str | None, str | None]  # tenant, session, agent, branch, model


@dataclass(slots=True)
class _Last:
    """A chain's newest prompt: its units' digests with their kinds, its tools, and its head's fingerprint."""

    units: tuple[Unit, ...]
    tools: tuple[bytes, ...]
    head: Fingerprint


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Fingerprint:
    """Keyed hashes of a text's pieces of PIECE characters, counted from its beginning and from its end. It takes
    milliseconds for a long text, so that chains with one head share one."""

    forth: array[int]
    back: array[int]

    @classmethod
    def of(cls, text: str, secret: bytes) -> Fingerprint:
        """Of a text."""
        return cls(_pieces(text, secret), _pieces(text[::-1], secret))

    def first_difference(self, other: Fingerprint) -> int:
        """In pieces from the beginning."""
        return _common(self.forth, other.forth)

    def alike(self, other: Fingerprint) -> bool:
        """Whether two heads are one prompt with a change in it, rather than two prompts."""
        if not self.forth or not other.forth:
            return True
        same = _common(self.forth, other.forth) + _common(self.back, other.back)
        return same * 2 >= max(len(self.forth), len(other.forth))


class Doctor:
    """Notices by code in `counts`; the newest of each exchange in its notes."""

    name = "doctor"

    def __init__(self, secret: bytes) -> None:
        self._secret = secret[:32]
        self.counts: Counter[str] = Counter()
        self._last: OrderedDict[_Key, _Last] = OrderedDict()
        self._tokens: OrderedDict[_Key, array[int]] = OrderedDict()  # keyed hashes of a chain's first tokens
        self._waiting: OrderedDict[bytes, dict[_Key, dict[str, Any] | None]] = OrderedDict()  # chains by newest unit
        self._notices: OrderedDict[_Key, dict[str, Any]] = OrderedDict()
        self._heads: WeakValueDictionary[bytes, Fingerprint] = WeakValueDictionary()  # as long as a chain has it

    async def enter(self, exchange: Exchange) -> None:
        """Compare it with its session's last prompt."""
        seen: Seen | None = exchange.notes.get("decisions")
        if seen is None:
            return
        conversation = seen.conversation
        owner = seen.arrived.owner
        key = (owner.tenant, owner.session, owner.agent, owner.branch, conversation.model)
        text = _head_text(exchange, conversation)
        new = _Last(conversation.units, conversation.tool_digests, self._fingerprint(owner.tenant, text))
        last = self._last.get(key)
        _keep(self._last, key, new)
        if conversation.units:
            self._wait(conversation, key, None)
        if last is None:
            return
        found = compare(last.units, last.tools, new.units, new.tools)
        if found is None:
            return
        code, unit = found
        if code == VOLATILE and not last.head.alike(new.head):
            return  # another prompt altogether: a side request
        self.counts[code] += 1
        told = {
            "code": code,
            "kind": None if unit is None else unit.kind,
            "message": None if unit is None else unit.index,
            "first_differing_token": None,
            "session": owner.session,
            "request": exchange.id,
        }
        exchange.notes[self.name] = told
        _keep(self._notices, key, told)
        if conversation.units:
            self._wait(conversation, key, told)
        listed = exchange.answer_headers.get("x-kvp-warn")
        exchange.answer_headers["x-kvp-warn"] = code if not listed else f"{listed}, {code}"
        if code == VOLATILE and exchange.headers.get(ASKED) == "show":
            exchange.answer_headers[ASKED] = _shown(text, last.head.first_difference(new.head) * PIECE)

    def placed(self, conversation: Conversation, places: Places, salt: str | None) -> None:
        """The engine's tokens of a prompt are known: say where it differs from its chain's last."""
        if places.tokens is None or not conversation.units:
            return
        waiting = self._waiting.pop(conversation.units[-1].digest, None)
        if waiting is None:
            return
        new = array("I", (self._hash(token) for token in places.tokens[:MOST_TOKENS]))
        for key, told in waiting.items():
            old = self._tokens.get(key)
            _keep(self._tokens, key, new)
            if told is not None and old is not None and (at := _common(old, new)) < MOST_TOKENS:
                told["first_differing_token"] = at

    def of_tenant(self, tenant: str, session: str | None = None) -> list[dict[str, Any]]:
        """The newest notice of each of a tenant's chains."""
        rows = [told for key, told in self._notices.items() if key[0] == tenant and session in (None, key[1])]
        return rows[-1000:]

    def _wait(self, conversation: Conversation, key: _Key, told: dict[str, Any] | None) -> None:
        """For the tokens of a prompt, which several chains may have at one moment."""
        digest = conversation.units[-1].digest
        chains = self._waiting.get(digest, {})
        if len(chains) < MOST_WAITING or key in chains:
            chains[key] = told
        _keep(self._waiting, digest, chains)

    def _fingerprint(self, tenant: str, text: str) -> Fingerprint:
        """Of a head, its first `MOST_TEXT` characters. Each tenant's are its own: how long this takes tells nobody what
        another has sent."""
        text = text[:MOST_TEXT]
        raw = text.encode("utf-8", "surrogatepass")
        key = blake2b(raw, digest_size=16, key=digest_key(self._secret, tenant)).digest()
        known = self._heads.get(key)
        if known is None:
            known = self._heads[key] = Fingerprint.of(text, self._secret)
        return known

    def _hash(self, token: int) -> int:
        return int.from_bytes(blake2b(token.to_bytes(8, "big"), digest_size=4, key=self._secret).digest(), "big")

    def chunk(self, exchange: Exchange, data: bytes) -> None:
        """Answers are of no interest here."""

    def leave(self, exchange: Exchange, how: str) -> None:
        """Nor is how they end."""


def _keep(table: OrderedDict[Any, Any], key: Any, value: Any) -> None:
    table[key] = value
    table.move_to_end(key)
    while len(table) > MOST_CHAINS:
        table.popitem(last=False)


def compare(
    old: tuple[Unit, ...], old_tools: tuple[bytes, ...], new: tuple[Unit, ...], new_tools: tuple[bytes, ...]
) -> tuple[str, Unit | None] | None:
    """The code and the first unit that differs; None where the new prompt goes through the old one, as it should."""
    for before, after in zip(old, new, strict=False):
        if before.digest == after.digest:
            continue
        if after.kind == "tools" and old_tools != new_tools and sorted(old_tools) == sorted(new_tools):
            return TOOL_ORDER, after
        if after.kind in HEAD and before.kind == after.kind:
            return VOLATILE, after
        return DIVERGED, after
    return None if len(new) >= len(old) else (DIVERGED, None)


def _head_text(exchange: Exchange, conversation: Conversation) -> str:
    """The text of the system prompt, as far as it is one."""
    system = exchange.body.get("system") or exchange.body.get("instructions")
    if isinstance(system, str):
        return system
    for message in conversation.messages or ():
        if message.get("role") in ("system", "developer") and isinstance(message.get("content"), str):
            return str(message["content"])
    return ""


def _pieces(text: str, secret: bytes) -> array[int]:
    raw, size = text.encode("utf-32-le", "surrogatepass"), 4 * PIECE
    each = [blake2b(raw[at : at + size], digest_size=4, key=secret).digest() for at in range(0, len(raw), size)]
    return array("I", b"".join(each))


def _common(ours: array[int], theirs: array[int]) -> int:
    for place, (one, other) in enumerate(zip(ours, theirs, strict=False)):
        if one != other:
            return place
    return min(len(ours), len(theirs))


def _shown(text: str, at: int) -> str:
    """The place in characters (to a piece), and the text around it, as a header can carry it."""
    around = text[max(0, at - AROUND) : at + PIECE + AROUND]
    safe = "".join(c if c.isascii() and c.isprintable() and c not in '"\\' else "?" for c in around)
    return f'at={at}, text="{safe}"'
