"""Protected memory never exceeds its quota: who is cut, and by how much.

Claims keep their protection in order of priority, then of who was protected first; what does not fit is cut from the
tail. Works on the few protected pieces of lines, weakest first, and asks the pool alone how many distinct blocks are
protected, so shared blocks count once by construction.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import inf

from kvpolicy.claims.claim import Claim
from kvpolicy.claims.covered import Covered, Entry
from kvpolicy.claims.line import Line
from kvpolicy.claims.ranks import Ranks
from kvpolicy.claims.strength import PROTECTED

Settle = Callable[[Line, float], None]


@dataclass(frozen=True, slots=True)
class Limit:
    """A quota of its own for some claims. blocks: how many may be protected for one group. group: which one a claim
    of a line is counted in; None: not limited. A claim is charged in full to its own group."""

    blocks: int
    group: Callable[[Line, Claim], Hashable | None]
    name: str = ""


class Budget:
    """blocks: the quota over all. settle: brings one line's marks up to date after its cut has changed."""

    __slots__ = (
        "_charged_to",
        "_covered",
        "_entered",
        "_groups",
        "_heap",
        "_most",
        "_ranks",
        "_room",
        "_settle",
        "_turn",
        "blocks",
        "limits",
    )

    def __init__(self, ranks: Ranks, blocks: int, settle: Settle, limits: tuple[Limit, ...] = ()) -> None:
        self._ranks = ranks
        self._settle = settle
        self.blocks = blocks
        self.limits = limits
        self._heap: list[Entry] = []  # priority, later first, unique, line: weakest on top
        self._room = 64
        self._entered: dict[Line, None] = {}
        self._most = 0  # lines that were entered at once since the heap was compacted
        self._turn = 0
        self._covered = Covered(ranks)
        self._groups: dict[tuple[int, Hashable], dict[Line, None]] = {}
        self._charged_to: dict[Line, dict[tuple[int, Hashable], None]] = {}

    def enter(self, line: Line) -> None:
        """A line has come to be protected, or is with other pieces than before."""
        since = line.holder.since
        assert since is not None
        self._entered[line] = None
        self._covered.leave(line, self._heap)
        self._most = max(self._most, len(self._entered))
        for _, strength, _ in line.pieces:
            priority = strength - PROTECTED
            if priority >= 0 and priority not in line.queued:
                line.queued = (*line.queued, priority)
                self._turn += 1  # of one owner's, the later leaves first; addresses would differ from run to run
                heappush(self._heap, (priority, -since, -self._turn, line))
        if len(self._heap) > self._room:
            self._compact()

    def keep(self, line: Line, now: float) -> bool:
        """Cut until everything fits, after `line` has changed. True when anything was cut."""
        cut = False
        pending = [line] if self.limits else []
        while pending:  # behind a claim that is cut, one of another group may step forward
            each = pending.pop()
            for number, limit in enumerate(self.limits):
                changed = self._keep_limit(number, limit, each, now)
                pending += changed
                cut = cut or bool(changed)
        if self._ranks.protected_blocks > self.blocks:
            self._keep_whole(now)
            cut = True
        return cut

    def forget(self, line: Line) -> None:
        """The line is protected no more."""
        self._covered.leave(line, self._heap)
        self._entered.pop(line, None)
        if 2 * len(self._entered) < self._most and len(self._heap) > 64:
            self._compact()  # what is gone must not be kept alive from here
        for key in self._charged_to.pop(line, ()):
            members = self._groups.get(key, {})
            members.pop(line, None)
            if not members:
                self._groups.pop(key, None)

    def _keep_whole(self, now: float) -> None:
        # INVARIANT: what is left is what taking claims strongest first, each as far as it fits, would leave.
        ranks = self._ranks
        passed: list[tuple[Entry, int, float]] = []
        covered = self._covered
        covered.look(self._heap)
        while (before := ranks.protected_blocks) > self.blocks and self._heap:
            entry = heappop(self._heap)
            priority, _, _, line = entry
            length = _piece(line, priority)
            if not length:
                _leave(line, priority)
                continue
            if covered.takes(entry):
                continue
            granted, way = line.granted, covered.way(line)
            shorter = min(length, max((n for n, s, _ in line.pieces if s > PROTECTED + priority), default=0))
            # What others keep is the head of its prefix, so its tail is its own, as far as it goes.
            enough = max(self._charged(line, length) - (before - self.blocks), shorter)
            self._cut(line, enough, now)
            if ranks.protected_blocks <= self.blocks:
                self._stay(entry)
                break
            if enough > shorter:
                self._cut(line, shorter, now)
            passed.append((entry, length, granted))
            covered.look(self._heap, way)  # what it shared with weaker ones may be theirs alone by now
        for entry, length, granted in reversed(passed):  # strongest first: what others keep anyway is free
            line = entry[3]
            lowest = line.granted
            self._cut(line, granted, now)
            excess = ranks.protected_blocks - self.blocks
            if excess > 0:
                self._cut(line, max(self._charged(line, length) - excess, lowest), now)
            self._stay(entry)

    def _stay(self, entry: Entry) -> None:
        """Put a line back at its priority, if it is still protected there."""
        if _piece(entry[3], entry[0]):
            heappush(self._heap, entry)
        else:
            _leave(entry[3], entry[0])

    def keep_whole(self, now: float) -> None:
        """Cut until everything together fits, after blocks have moved between tiers."""
        if self._ranks.protected_blocks > self.blocks:
            self._keep_whole(now)

    def _charged(self, line: Line, length: int) -> float:
        """Blocks of a protected prefix that the budget counts: what lies below the first tier costs nothing there."""
        return self._ranks.on_first_tier(line.marks[0], length) if line.marks else length

    def _keep_limit(self, number: int, limit: Limit, line: Line, now: float) -> list[Line]:
        """Cut what the groups that `line` is charged to have too much. Returns the lines that were cut."""
        charged: dict[Hashable, int] = {}
        for length, strength, claim in line.pieces:
            if strength >= PROTECTED:
                group = limit.group(line, claim)
                if group is not None:
                    charged[group] = max(charged.get(group, 0), length)
        cut: list[Line] = []
        for group in charged:
            members = self._groups.setdefault((number, group), {})
            members[line] = None
            self._charged_to.setdefault(line, {})[number, group] = None
            lengths = {member: _charge(limit, member, group) for member in members}
            total = sum(lengths.values())
            for member in sorted(members, key=_weakest_first):
                if total <= limit.blocks:
                    break
                length = lengths[member]
                if not length:
                    members.pop(member)
                    continue
                left = max(0, length - (total - limit.blocks))
                for claim in member.claims:  # those of other groups keep theirs
                    if claim.granted > left and limit.group(member, claim) == group:
                        claim.granted, member.cut = left, True
                self._settle(member, now)
                total -= length - left
                cut.append(member)
        return cut

    def _cut(self, line: Line, granted: float, now: float) -> None:
        line.granted = granted
        self._settle(line, now)

    def _compact(self) -> None:
        live = []
        for entry in self._heap:
            if _piece(entry[3], entry[0]):
                live.append(entry)
            else:
                _leave(entry[3], entry[0])
        heapify(live)
        self._heap = live
        self._room = 2 * len(live) + 64
        self._most = len(self._entered)


def _leave(line: Line, priority: int) -> None:
    """The line stands in the order at that priority no more."""
    line.queued = tuple([each for each in line.queued if each != priority])


def _piece(line: Line, priority: int) -> int:
    """What eviction has left of the line's protected piece of that priority, in blocks; 0 for none."""
    length = next((length for length, strength, _ in line.pieces if strength == PROTECTED + priority), 0)
    return min(length, line.length)


def _charge(limit: Limit, line: Line, group: Hashable) -> int:
    """Blocks that claims of the group protect on a line, as far as they are left."""
    longest = max((n for n, s, c in line.pieces if s >= PROTECTED and limit.group(line, c) == group), default=0)
    return min(longest, line.length)


def _weakest_first(line: Line) -> tuple[float, float]:
    priority = min((s for _, s, _ in line.pieces if s >= PROTECTED), default=0)
    since = line.holder.since
    return (priority, -(inf if since is None else since))
