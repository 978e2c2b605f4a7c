"""One integer orders blocks: what a claim asks for, as the pool compares it.

Made by the ledger from a claim's priority, protection and drop; read by the pool, which compares and never interprets
it beyond the tests below. First evicted to last: dropped, 0 to 100 (the priority), protected (by priority).
"""

from __future__ import annotations

from kvpolicy import words

DROPPED = -1
LOWEST = 0  # of what may be sent again
DEFAULT = words.DEFAULT_PRIORITY
PROTECTED = 200  # a protected block of priority p stands at PROTECTED + p


def protect(priority: int) -> int:
    """The strength of a protected block of that priority (0 to 100)."""
    return PROTECTED + priority


def is_protected(strength: int) -> bool:
    """Whether the strength is one of a protected block."""
    return strength >= PROTECTED


def priority_of(strength: int) -> int:
    """The priority behind a strength; 0 for dropped."""
    if strength >= PROTECTED:
        return strength - PROTECTED
    return max(strength, 0)
