"""Learned times of one tenant: how long each tool takes, each node's steps, and humans.

`learned` feeds it as calls and human pauses begin and end, and as steps end; `signals` and `course` ask. What a tool or
node does is known from its own durations; where it has none, those of all tools or all steps speak for it. Of calls and
human pauses also those count that are open, lost sight of or over for good (`survival`); of steps those that ended.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from kvpolicy.workflow.durations import HALF_LIFE_S, RETURNED, Series

MOST_NAMES = 1024  # of tools, and of nodes, kept per tenant; the longest unused leave first

TOOL, TOOLS, HUMAN, STEP = "tool.duration", "tools.duration", "human.duration", "step.duration"


class LearnedTimes:
    """All series of one tenant. half_life: seconds after which a duration weighs half."""

    __slots__ = ("half_life", "human", "node", "step", "tool", "tools")

    def __init__(self, half_life: float = HALF_LIFE_S) -> None:
        self.half_life = half_life
        self.tool: dict[str, Series] = {}
        self.node: dict[str, Series] = {}
        self.tools, self.human, self.step = Series(half_life), Series(half_life), Series(half_life)

    # --- what happens -------------------------------------------------------------------------------------

    def began(self, kind: str, key: str | None, at: float) -> None:
        """A pause began at `at`. kind: TOOL or HUMAN (of steps only `stepped` is told); key: the tool."""
        for series in self._told(kind, key):
            series.opened(at)

    def over(self, kind: str, key: str | None, began: float, at: float, way: str = RETURNED) -> None:
        """A pause that began at `began` was over at `at`. way: of `durations.WAYS`."""
        for series in self._told(kind, key):
            series.closed(began)
            series.add(max(0.0, at - began), at, way)

    def stepped(self, node: str | None, seconds: float, at: float | None = None) -> None:
        """A step was over after `seconds`. Those that never end are not told of: none counts as open or lost."""
        for series in self._told(STEP, node):
            series.add(seconds, at)

    def go_on_with(self, other: LearnedTimes) -> None:
        """What is open in `other` is open here: these times take the place of those."""
        for mine, others in ((self.tool, other.tool), (self.node, other.node)):
            for key, series in others.items():
                if series.waiting:
                    self._named(mine, key).go_on_with(series)
        self.tools.go_on_with(other.tools)
        self.human.go_on_with(other.human)
        self.step.go_on_with(other.step)

    # --- what is asked ------------------------------------------------------------------------------------

    def of(self, name: str, tools: Iterator[str | None]) -> Iterator[Series]:
        """The series that `name` (of `words.SERIES`) stands for while `tools` run."""
        if name == TOOL:
            for tool in tools:
                if tool is not None and tool in self.tool:
                    yield self.tool[tool]
        elif name == TOOLS:
            yield self.tools
        elif name == HUMAN:
            yield self.human
        elif name == STEP:
            yield self.step

    def best_known(self, kind: str, key: str | None) -> Series:
        """The series to ask about a pause: the tool's or node's own, that of all where it has no durations."""
        if kind == HUMAN:
            return self.human
        own = None if key is None else (self.tool if kind == TOOL else self.node).get(key)
        everything = self.tools if kind == TOOL else self.step
        return own if own is not None and own.count else everything

    def remaining(self, kind: str, key: str | None, waited: float, now: float = 0.0) -> float | None:
        """How long a pause or step goes on that has lasted `waited` at `now` (seconds): the median among those that
        lasted longer. What has outlasted all that was seen goes on as recency says, three times as long again. None
        where nothing is known. kind: TOOL, HUMAN or STEP; key: the tool or the node."""
        return self.best_known(kind, key).remaining(waited, now)

    def typical(self, kind: str, key: str | None) -> float | None:
        """The median of the pause or step as a whole; None where nothing is known."""
        return self.best_known(kind, key).percentile(50)

    def return_probability(
        self, kind: str, key: str | None, waited: float, within: float = math.inf, now: float = 0.0
    ) -> float | None:
        """P(it is over within the next `within` seconds), given that it has lasted `waited` at `now`."""
        return self.best_known(kind, key).return_probability(waited, within, now)

    # --- inside -------------------------------------------------------------------------------------------

    def _told(self, kind: str, key: str | None) -> tuple[Series, ...]:
        """The series that learn from a pause or step."""
        if kind == HUMAN:
            return (self.human,)
        everything, named = (self.tools, self.tool) if kind == TOOL else (self.step, self.node)
        return (everything,) if key is None else (everything, self._named(named, key))

    def _named(self, named: dict[str, Series], key: str) -> Series:
        series = named.pop(key, None) or Series(self.half_life)
        named[key] = series
        if len(named) > MOST_NAMES:
            del named[next(iter(named))]
        return series
