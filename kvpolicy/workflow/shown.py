"""How a message shows a value that is refused: not at length, and whatever it is."""

from __future__ import annotations

_MOST = 80


def shown(value: object) -> str:
    """The value as it would be written, cut where it is long."""
    try:
        text = repr(value)
    except Exception:  # of a number of thousands of digits there is no text
        return f"a value of type {type(value).__name__} that is too long to show"
    return text if len(text) <= _MOST else f"{text[:_MOST]}…"
