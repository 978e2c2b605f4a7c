"""The classes of pauses of one tenant, as a tree: every class stands under a coarser one, the tenant's own at the top.

Class names are lists of what is known of a pause, coarsest first (see `pauses`); the last, finest one is the tools that
run. Only those are without bound, since tools are what callers say: the longest unused leave first.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from kvpolicy.workflow.hazard import Hazard
from kvpolicy.workflow.trust import Trust

MOST_TOOLS = 1024  # classes told apart by tools

Names = tuple[Hashable, ...]


class Classes:
    """Hazards by the names of their class. The first stands for all pauses of the tenant."""

    __slots__ = ("_coarse", "_fine", "trust")

    def __init__(self) -> None:
        self._coarse: dict[Names, Hazard] = {(): Hazard(None)}
        self.trust = Trust()
        self._fine: dict[tuple[Names, Names], Hazard] = {}

    @property
    def everything(self) -> Hazard:
        """The class of all pauses."""
        return self._coarse[()]

    def named(self, names: Sequence[Hashable], tools: Names = ()) -> Hazard:
        """The class of these names, and of these tools within it."""
        key = tuple(names)
        hazard = self._coarse.get(key)
        if hazard is None:
            hazard = self._coarse[key] = Hazard(self.named(key[:-1]))
        if not tools:
            return hazard
        fine = self._fine.pop((key, tools), None) or Hazard(hazard)
        self._fine[key, tools] = fine
        if len(self._fine) > MOST_TOOLS:
            del self._fine[next(iter(self._fine))]
        return fine

    def rows(self) -> Iterator[tuple[Names, Names, Hazard]]:
        """Every class: names, tools, hazard; coarser ones before finer ones."""
        for names, hazard in self._coarse.items():
            yield names, (), hazard
        for (names, tools), hazard in self._fine.items():
            yield names, tools, hazard
