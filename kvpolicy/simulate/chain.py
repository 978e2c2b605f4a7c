"""The prefix rule of block ids: one id, one prefix. Checked for every call, and the source of what a trace saw before.

Memory: one dictionary entry per unique block of the trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kvpolicy.faults import InputFault
from kvpolicy.simulate.trace import BlockId

_ROOT = object()  # the parent of a first block


class Prefixes:
    """Every block of a trace so far, with the block before it."""

    def __init__(self) -> None:
        self._parent: dict[BlockId, object] = {}

    def __len__(self) -> int:
        return len(self._parent)

    def add(self, path: Path, line: int, hashes: Sequence[BlockId]) -> int:
        """How many leading blocks were seen before. Raises InputFault for an id with two different parents."""
        parent = self._parent
        got = list(map(parent.get, hashes))
        before: list[object] = [_ROOT, *hashes[:-1]] if hashes else []
        if got == before:
            return len(got)
        seen = next(i for i, (one, other) in enumerate(zip(got, before, strict=True)) if one != other)
        new = dict(zip(hashes[seen:], before[seen:], strict=True))
        for index, known in enumerate(got[seen:], seen):
            if known is not None:
                raise _fault(path, line, hashes[index], known, before[index])
        if len(new) != len(hashes) - seen:  # an id twice in one list
            block = next(b for i, b in enumerate(hashes) if b in hashes[:i])
            raise InputFault(f"{path}:{line}: block id {block!r} stands twice in one prompt; {_MEND}")
        parent.update(new)
        return seen


_MEND = "ids must name the block and all before it (prefix-chained), so hash each block together with its prefix"


def _fault(path: Path, line: int, block: BlockId, one: object, other: object) -> InputFault:
    places = ["at the start" if parent is _ROOT else f"after {parent!r}" for parent in (one, other)]
    return InputFault(
        f"{path}:{line}: block id {block!r} stood {places[0]} before and stands {places[1]} here; {_MEND}"
    )
