"""The naive pool with lower tiers: every block sinks, comes up and is lost one at a time."""

from __future__ import annotations

from tests.pool.naive import Block, NaiveLease, NaiveMark, NaivePool, Name

TIERS = ("gpu", "cpu", "disk")


class NaiveTieredPool(NaivePool):
    """levels: where each block is. capacities: GPU first. refused: marks whose claim keeps blocks off lower tiers."""

    def __init__(self, *capacities: int) -> None:
        super().__init__(capacities[0])
        self.capacities = capacities
        self.levels: dict[Name, int] = {}
        self.refused: set[int] = set()

    def load(self, level: int) -> int:
        private = sum(lease.private for lease in self.leases) if level == 0 else 0
        return private + sum(self.levels[name] == level for name in self.blocks)

    def key(self, name: Name) -> tuple[int, int, int]:
        return self.rank(name), self.blocks[name].number, -len(name)

    def order_of(self, level: int) -> list[Name]:
        unheld = [name for name in self.blocks if self.levels[name] == level and not self.held(name)]
        return sorted(unheld, key=self.key)

    def order(self) -> list[Name]:
        return self.order_of(0)

    def room(self, evicted: list[Name]) -> bool:
        return self.load(0) < self.capacity or self.evict_one(evicted)

    def evict_one(self, evicted: list[Name]) -> bool:
        order = self.order()
        if not order:
            return False
        evicted.append(order[0])
        self.leave(order[0], 1)
        return True

    def behind(self, name: Name) -> list[Name]:
        return [other for other in self.blocks if len(other) > len(name) and other[: len(name)] == name]

    def leave(self, name: Name, level: int) -> None:
        """The block leaves its tier for that one, or the one after, or is lost with all behind it."""
        covering = [mark for mark in self.marks if mark.path[: len(name)] == name]
        above = any(self.levels[other] < level for other in self.behind(name))
        wanted = not covering or any(id(mark) not in self.refused for mark in covering)
        if level >= len(self.capacities) or above or not wanted:
            self.lose(name)
        elif self.place(level, self.key(name)):
            self.levels[name] = level
        else:
            self.leave(name, level + 1)

    def place(self, level: int, key: tuple[int, int, int]) -> bool:
        if self.load(level) < self.capacities[level]:
            return True
        order = self.order_of(level)
        if not order or self.key(order[0]) > key:
            return False
        self.leave(order[0], level + 1)
        return True

    def lose(self, name: Name) -> None:
        for other in sorted([name, *self.behind(name)], key=len, reverse=True):
            assert not self.held(other)
            del self.blocks[other]
            for mark in self.marks:
                if mark.path == other:
                    mark.path = other[:-1]
                    if not mark.path:
                        self.emptied.append(mark)
        self.marks = [mark for mark in self.marks if mark.path]

    def enter(self, lease: NaiveLease, path: Name, now: float) -> int:
        self.at(now)
        lease.asked = len(path)
        start = len(lease.path)
        found = max(self.match(path), start)
        for end in range(start + 1, found + 1):
            self.blocks[path[:end]].own = 35
            self.used.add(path[:end])
        lease.path = path[:found]
        self.found_at = [0] * len(self.capacities)
        for end in range(start + 1, found + 1):
            level = self.levels[path[:end]]
            if level:
                self.levels[path[:end]] = -1  # on its way: its place is free
                if not self.room(lease.evicted):
                    self.levels[path[:end]] = level
                    lease.path = path[: end - 1]
                    found = end - 1
                    break
                self.levels[path[:end]] = 0
            self.found_at[level] += 1
        lease.private -= min(lease.private, found - start)
        if self.match(path) > found:
            return found - start
        for end in range(found + 1, len(path) + 1):
            if lease.private:
                lease.private -= 1
            elif not self.room(lease.evicted):
                break
            self.blocks[path[:end]] = Block()
            self.levels[path[:end]] = 0
            self.used.add(path[:end])
            lease.path = path[:end]
        return found - start

    def refuse(self, mark: NaiveMark) -> None:
        self.refused.add(id(mark))
