"""The nearest existing word to one that does not exist: for "did you mean".

Words come from the closed tables and from the names an author defined; the answer goes into messages.
"""

from __future__ import annotations

from collections.abc import Iterable

MOST_COMPARED = 20_000  # words with known ones in one text: the nearest of thousands takes a while


def is_worth_it(told: int, known: int) -> bool:
    """Whether the nearest of `known` words is looked for, where so many faults were told before: of a text that is
    full of unknown words the first ones show what is wrong."""
    return told * known < MOST_COMPARED


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word with the fewest slips from `word`, None where none is near (more than a third is wrong).

    A slip is a letter missing, added, changed, or two swapped (optimal string alignment). Ties go to the word that
    shares the first letter, then to the alphabet. A word that continues or starts another counts as near.
    """
    if not word or len(word) > 64:
        return None
    lowered = word.lower()
    best: tuple[int, int, str] | None = None
    for candidate in sorted(set(known)):
        target = candidate.lower()
        allowed = max(1, (max(len(lowered), len(target)) + 1) // 3)
        if abs(len(lowered) - len(target)) > allowed and not _extends(lowered, target):
            continue
        slips = 0 if lowered == target else _slips(lowered, target)
        if slips > allowed:
            if not _extends(lowered, target):
                continue
            slips = allowed + 1
        key = (slips, int(lowered[:1] != target[:1]), candidate)
        if best is None or key < best:
            best = key
    return best[2] if best else None


def _extends(word: str, target: str) -> bool:
    return min(len(word), len(target)) >= 3 and (target.startswith(word) or word.startswith(target))


def _slips(word: str, target: str) -> int:
    before: list[int] = []
    last = list(range(len(target) + 1))
    for row, letter in enumerate(word, start=1):
        now = [row]
        for column, other in enumerate(target, start=1):
            cost = min(last[column] + 1, now[column - 1] + 1, last[column - 1] + (letter != other))
            swapped = row > 1 and column > 1 and letter == target[column - 2] and word[row - 2] == other
            if swapped:
                cost = min(cost, before[column - 2] + 1)
            now.append(cost)
        before, last = last, now
    return last[-1]
