"""What one rank of a worker holds: physical copies of each block, counted per medium and group.

Fed by `source` with events in their true order. Counts come from the set of blocks, never from a running total, so
that repeated or surplus events cannot make them drift.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Sequence
from hashlib import sha256
from sys import byteorder

from kvpolicy.residency.events import BATCH, CLEARED, STORED, KvEvent

Place = tuple[int | None, str]  # group, medium
_ORDER = {"gpu": 0, "cpu": 1, "disk": 2, "remote": 3}


class Holdings:
    """copies: block -> (group, medium) -> physical copies, all above 0. reannounces: the engine tells blocks again
    that it told before, so a repeated store is the same copy. by_tokens: own key of a block's tokens -> block."""

    __slots__ = ("_keys", "by_tokens", "copies", "reannounces")

    def __init__(self, reannounces: bool = False) -> None:
        self.copies: dict[Hashable, dict[Place, int]] = {}
        self.reannounces = reannounces
        self.by_tokens: dict[bytes, Hashable] = {}
        self._keys: dict[Hashable, bytes] = {}

    def apply(self, event: KvEvent) -> None:
        """Take an event. A removal of what is not there does nothing."""
        if event.kind == BATCH:
            for part in event.parts:
                self.apply(part)
            return
        if event.kind == CLEARED:
            self._clear(event.medium)
            return
        place = (event.group, event.medium or "gpu")
        if event.kind == STORED:
            self._learn(event)
            for block in event.hashes:
                places = self.copies.setdefault(block, {})
                places[place] = 1 if self.reannounces else places.get(place, 0) + 1
            return
        for block in event.hashes:
            held = self.copies.get(block)
            if held is None or place not in held:
                continue
            held[place] -= 1
            if held[place] <= 0:
                del held[place]
            if not held:
                self._forget(block)

    def has(self, block: Hashable, groups: Sequence[int] = ()) -> bool:
        """Whether the block is there, and in every group that is named."""
        places = self.copies.get(block)
        if not places:
            return False
        told = {group for group, _ in places}
        return told == {None} or all(group in told for group in groups)

    def tiers(self, block: Hashable) -> list[str]:
        """The media that have it, highest first."""
        media = {medium for _, medium in self.copies.get(block, ())}
        return sorted(media, key=lambda medium: (_ORDER.get(medium, 9), medium))

    def count(self, block: Hashable) -> int:
        """Physical copies of the block, over all media."""
        return sum(self.copies.get(block, {}).values())

    def _clear(self, medium: str | None) -> None:
        if medium is None:
            self.copies.clear()
            self._keys.clear()
            self.by_tokens.clear()
            return
        for block in list(self.copies):
            places = self.copies[block]
            for place in [place for place in places if place[1] == medium]:
                del places[place]
            if not places:
                self._forget(block)

    def _forget(self, block: Hashable) -> None:
        del self.copies[block]
        key = self._keys.pop(block, None)
        if key is not None and self.by_tokens.get(key) == block:
            del self.by_tokens[key]

    def _learn(self, event: KvEvent) -> None:
        """Names for blocks by their tokens, where the event tells all of them and its parent is known."""
        if not event.hashes or len(event.tokens) % len(event.hashes) or not event.tokens:
            return
        key: bytes | None = root_key(event.salt) if event.parent is None else self._keys.get(event.parent)
        size = len(event.tokens) // len(event.hashes)
        for index, block in enumerate(event.hashes):
            if key is None:
                return
            key = token_key(key, event.tokens[index * size : (index + 1) * size])
            self._keys[block] = key
            self.by_tokens[key] = block


def root_key(salt: str | None) -> bytes:
    """What the name of a prompt's first block begins with: its salt, so that prompts of two salts never meet."""
    return b"" if salt is None else b"salt\0" + salt.encode("utf-8", "surrogatepass")


def token_key(parent: bytes, tokens: Sequence[int]) -> bytes:
    """Our own name of a block by its tokens and those before it. Never sent to an engine: its hashes are its own."""
    packed = array("q", tokens)
    if byteorder == "big":
        packed.byteswap()
    return sha256(parent + packed.tobytes()).digest()
