"""Blocks by name: a timeline calls them by the hash it gave, else REQUEST:INDEX, and each stands for its whole prefix.

Follows the pool's own events to know what is resident; remembers what has gone, bounded, so that an answer can tell a
block that left from one that never was.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from kvpolicy.pool import Pool
from kvpolicy.pool.events import BlockRemoved, BlockStored

Name = str | int
REMEMBERED = 100_000  # blocks that have gone, and blocks of finished prompts beside the pool's own


@dataclass(slots=True)
class Prompt:
    """hashes: of its full blocks (and of a partial last one that was given a name). tokens: its length in tokens."""

    hashes: list[Hashable]
    tokens: int
    running: bool = True


class Names:
    """Every block that is resident, being computed, or went not long ago."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._before: dict[Hashable, Hashable | None] = {}  # the block before it in the prompt; None at the head
        self._gone: OrderedDict[Hashable, Hashable | None] = OrderedDict()
        self._copies: dict[Hashable, int] = {}
        self._shown: dict[Hashable, str] = {}  # names of blocks that came as tokens
        self._prompts: OrderedDict[str, Prompt] = OrderedDict()
        self._kept = 0
        self.raised: list[Hashable] = []  # blocks that came up to the GPU, until `take_raised`
        self._most = REMEMBERED + 2 * sum(tier.capacity for tier in pool.tiers)

    def begin(self, request: str, hashes: Sequence[Hashable], tokens: int, *, given: bool) -> None:
        """A request has come. given: its hashes were stated, so they are the names."""
        old = self._prompts.pop(request, None)
        if old is not None:
            self._kept -= len(old.hashes)
        self._prompts[request] = Prompt([], tokens)
        self.grow(request, hashes, tokens, given=given)
        for _ in range(len(self._prompts)):
            if self._kept <= self._most:
                break
            oldest, prompt = self._prompts.popitem(last=False)
            if prompt.running:
                self._prompts[oldest] = prompt
            else:
                self._kept -= len(prompt.hashes)

    def grow(self, request: str, hashes: Sequence[Hashable], tokens: int, *, given: bool) -> None:
        """More blocks of a request. tokens: its length by now."""
        prompt = self._prompts[request]
        before = prompt.hashes[-1] if prompt.hashes else None
        for index, block in enumerate(hashes, len(prompt.hashes)):
            if not given and block not in self._before:
                self._shown[block] = f"{request}:{index}"
            self._before[block] = before
            self._gone.pop(block, None)
            before = block
        prompt.hashes += hashes
        prompt.tokens = tokens
        self._kept += len(hashes)

    def end(self, request: str) -> None:
        """It runs no more: what it never stored is gone."""
        prompt = self._prompts.get(request)
        if prompt is None:
            return
        prompt.running = False
        for block in prompt.hashes:
            if block not in self._copies:
                self._leave(block)

    def running(self) -> list[str]:
        """The requests that have not ended."""
        return [id for id, prompt in self._prompts.items() if prompt.running]

    def heed(self) -> None:
        """Take up what the pool has told since."""
        events = self._pool.events
        if not events:
            return
        for event in events:
            if isinstance(event, BlockStored):
                for block in event.hashes:
                    copies = self._copies.get(block, 0)
                    if event.medium == "GPU" and copies:  # it is told above before it is gone below
                        self.raised.append(block)
                    self._copies[block] = copies + 1
                    if block in self._gone:  # it left after the request that brings it back had come
                        self._before[block] = self._gone.pop(block)
            elif isinstance(event, BlockRemoved):
                for block in event.hashes:
                    left = self._copies.get(block, 1) - 1
                    if left > 0:
                        self._copies[block] = left
                    else:
                        self._copies.pop(block, None)
                        self._leave(block)
        events.clear()

    def take_raised(self, request: str | None) -> list[Hashable]:
        """The blocks that came up from a lower tier since, but for those that this request itself found there."""
        self.heed()
        found, self.raised = self.raised, []
        if found and request is not None:
            own = set(self.last_prompt(request))
            return [block for block in found if block not in own]
        return found

    def find(self, name: Name) -> Hashable | None:
        """The hash behind a name; None for a name never heard of, or forgotten."""
        if name in self._before or name in self._gone:
            return name
        request, colon, index = str(name).rpartition(":")
        prompt = self._prompts.get(request) if colon and index.isdecimal() else None
        if prompt is not None and int(index) < len(prompt.hashes):
            return prompt.hashes[int(index)]
        return None

    def partial(self, name: Name, block_size: int) -> bool:
        """Whether it names the last block of a prompt, which is not full."""
        request, colon, index = str(name).rpartition(":")
        prompt = self._prompts.get(request) if colon and index.isdecimal() else None
        return prompt is not None and len(prompt.hashes) <= int(index) < -(-prompt.tokens // block_size)

    def path(self, block: Hashable) -> list[Hashable]:
        """The blocks of a prefix, head first, as far as they are remembered."""
        found, at = [], block
        while at is not None and (at in self._before or at in self._gone):
            found.append(at)
            at = self._before[at] if at in self._before else self._gone[at]
        return found[::-1]

    def ends(self, blocks: Iterable[Hashable]) -> list[list[Hashable]]:
        """The prompts that end at these blocks, those that another of them goes on from left out: shorter ones first,
        later ones before earlier. Every block of them is met once, and once more in its path."""
        asked = [block for block in dict.fromkeys(blocks) if block in self._before or block in self._gone]
        inner: set[Hashable] = set()
        for block in asked:
            at = self._parent(block)
            while at is not None and at not in inner:
                inner.add(at)
                at = self._parent(at)
        paths = sorted((self.path(block) for block in asked if block not in inner), key=len, reverse=True)
        return paths[::-1]

    def _parent(self, block: Hashable) -> Hashable | None:
        return self._before[block] if block in self._before else self._gone.get(block)

    def resident(self, block: Hashable) -> bool:
        """Whether some tier has it."""
        return block in self._copies

    def computing(self, block: Hashable) -> bool:
        """Whether a running request is about to store it."""
        return block in self._before and block not in self._copies

    def shown(self, blocks: Iterable[Hashable]) -> list[Name]:
        """Their names in answers."""
        return [self.name(block) for block in blocks]

    def name(self, block: Hashable) -> Name:
        """Its name in answers."""
        if isinstance(block, str | int):
            return block
        return self._shown.get(block, str(block))

    def last_prompt(self, request: str) -> list[Hashable]:
        """The blocks of a request."""
        prompt = self._prompts.get(request)
        return [] if prompt is None else prompt.hashes

    def _leave(self, block: Hashable) -> None:
        if block in self._before:
            self._gone[block] = self._before.pop(block)
            self._gone.move_to_end(block)
            while len(self._gone) > REMEMBERED:
                forgotten, _ = self._gone.popitem(last=False)
                self._shown.pop(forgotten, None)
