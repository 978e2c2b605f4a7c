"""How long the parts of logged prompts are: a log names each message by a digest of all up to its end, and counts the
tokens of whole prompts only.

Where a prompt ends is known, and so is where an earlier one ended that it goes on from; what it has beyond the longest
part known is spread evenly. Read by the reader of decision logs and by `record`; memory: one number a digest.
"""

from __future__ import annotations

from collections.abc import Sequence


class Parts:
    """The ends of parts, by digest. One that was told stays, so that a digest always names the same tokens."""

    def __init__(self) -> None:
        self._ends: dict[str, int] = {}

    def ends(self, digests: Sequence[str], total: int) -> list[int]:
        """Where each part of a prompt of `total` tokens ends, never falling; the last may differ from `total` where
        one prompt was counted differently at other times."""
        known = self._ends
        place = next((place for place in range(len(digests), 0, -1) if digests[place - 1] in known), 0)
        base = min(known[digests[place - 1]], total) if place else 0
        for number in range(place, len(digests)):
            known[digests[number]] = base + (total - base) * (number - place + 1) // (len(digests) - place)
        found, before = [], 0
        for digest in digests:
            before = max(before, known[digest])
            found.append(before)
        return found
