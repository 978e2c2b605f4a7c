"""A naive pool: one record a block, every rank worked out from scratch. Slow and obviously right.

A block's name is its whole prefix, a tuple of tokens, so that what covers what can be read off. Ranks follow the
contract word by word; the victim is the least of ALL unheld blocks, not only of those that have nothing behind them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

DEFAULT, PROTECTED = 35, 200
Name = tuple[int, ...]


@dataclass(eq=False)
class NaiveMark:
    path: Name  # the prefix it covers; empty once gone
    strength: int | None


@dataclass(eq=False)
class NaiveLease:
    path: Name  # the blocks it holds
    asked: int
    private: int = 0
    hits: int = 0
    evicted: list[Name] = field(default_factory=list)


@dataclass
class Block:
    own: int = DEFAULT
    number: int = 0
    released_at: float | None = None


class NaivePool:
    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.blocks: dict[Name, Block] = {}
        self.marks: list[NaiveMark] = []
        self.leases: list[NaiveLease] = []
        self.emptied: list[NaiveMark] = []
        self.number = 0
        self.now = 0.0
        self.began: dict[Name, int] = {}  # ranks when the present instant began
        self.used: set[Name] = set()  # what requests used in the present instant

    # --- ranks

    def claims(self, name: Name) -> list[int]:
        return [m.strength for m in self.marks if m.strength is not None and m.path[: len(name)] == name]

    def rank(self, name: Name) -> int:
        claims = self.claims(name)
        if claims:
            return max(claims)
        before = self.rank(name[:-1]) if len(name) > 1 else DEFAULT
        return min(DEFAULT, self.blocks[name].own, before)

    def held(self, name: Name) -> int:
        return sum(lease.path[: len(name)] == name for lease in self.leases)

    def at(self, now: float) -> None:
        """A new instant begins with the first thing that happens in it."""
        if now != self.now:
            self.now = now
            self.began = {name: self.rank(name) for name in self.blocks}
            self.used = set()

    def change(self, mark: NaiveMark, path: Name, strength: int | None) -> None:
        claimed = {name for name in self.blocks if self.claims(name)}
        mark.path, mark.strength = path, strength
        for name in claimed:
            if name in self.blocks and not self.claims(name):
                self.blocks[name].own = DEFAULT if name in self.used else min(DEFAULT, self.began[name])

    # --- requests

    def match(self, path: Name) -> int:
        length = 0
        while length < len(path) and path[: length + 1] in self.blocks:
            length += 1
        return length

    def enter(self, lease: NaiveLease, path: Name, now: float) -> int:
        """`path` is the whole prompt; what the lease has of it already is not used anew. Returns blocks found."""
        self.at(now)
        lease.asked = len(path)
        start = len(lease.path)
        found = max(self.match(path), start)
        for end in range(start + 1, found + 1):
            self.blocks[path[:end]].own = DEFAULT
            self.used.add(path[:end])
        lease.path = path[:found]
        lease.private -= min(lease.private, found - start)
        for end in range(found + 1, len(path) + 1):
            if lease.private:
                lease.private -= 1
            elif not self.room(lease.evicted):
                break
            self.blocks[path[:end]] = Block()
            self.used.add(path[:end])
            lease.path = path[:end]
        return found - start

    def acquire(self, path: Name, now: float) -> NaiveLease:
        lease = NaiveLease((), len(path))
        self.leases.append(lease)
        lease.hits = self.enter(lease, path, now)
        return lease

    def extend(self, lease: NaiveLease, more: Name, now: float) -> None:
        if len(lease.path) < lease.asked:
            lease.asked += len(more)
        else:
            self.enter(lease, lease.path + more, now)

    def private(self, lease: NaiveLease, count: int, now: float) -> int:
        self.at(now)
        got = 0
        while got < count and self.room(lease.evicted):
            lease.private += 1
            got += 1
        return got

    def release(self, lease: NaiveLease, now: float) -> None:
        self.at(now)
        self.leases.remove(lease)
        self.number += 1
        for end in range(1, len(lease.path) + 1):
            if not self.held(lease.path[:end]):
                self.blocks[lease.path[:end]].number = self.number
                self.blocks[lease.path[:end]].released_at = now

    # --- eviction

    def order(self) -> list[Name]:
        unheld = [name for name in self.blocks if not self.held(name)]
        return sorted(unheld, key=lambda name: (self.rank(name), self.blocks[name].number, -len(name)))

    def room(self, evicted: list[Name]) -> bool:
        if len(self.blocks) + sum(lease.private for lease in self.leases) < self.capacity:
            return True
        return bool(self.evict_one(evicted))

    def evict_one(self, evicted: list[Name]) -> bool:
        order = self.order()
        if not order:
            return False
        name = order[0]
        assert not any(other[: len(name)] == name for other in self.blocks if other != name), "a gap in a prefix"
        del self.blocks[name]
        evicted.append(name)
        for mark in self.marks:
            if mark.path == name:
                mark.path = name[:-1]
                if not mark.path:
                    self.emptied.append(mark)
        self.marks = [mark for mark in self.marks if mark.path]
        return True

    def evict(self, count: int, now: float) -> list[Name]:
        self.at(now)
        evicted: list[Name] = []
        while len(evicted) < count and self.evict_one(evicted):
            pass
        return evicted

    # --- claims

    def mark(self, path: Name, length: int, strength: int | None, now: float) -> NaiveMark:
        self.at(now)
        mark = NaiveMark((), None)
        path = path[: min(max(length, 0), self.match(path))]
        if path:
            self.marks.append(mark)
            self.change(mark, path, strength)
        else:
            mark.strength = strength
        return mark

    def weigh(self, mark: NaiveMark, strength: int | None, now: float) -> None:
        self.at(now)
        self.change(mark, mark.path, strength)

    def unmark(self, mark: NaiveMark, now: float) -> None:
        self.at(now)
        if mark in self.marks:
            self.change(mark, (), None)
            self.marks.remove(mark)

    def weigh_all(self, changes: list[tuple[NaiveMark, int | None]], now: float) -> None:
        for mark, strength in changes:
            self.weigh(mark, strength, now)
