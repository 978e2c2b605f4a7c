"""A duration written in two units, `5m30s`, as the one quantity that says the same. For what messages say to write."""

from __future__ import annotations

import re

from kvpolicy import words

TIME = re.compile(r"(\d+(?:\.\d+)?)(ms|s|min|m|h|d)")


def seconds(text: str) -> str | None:
    """`5m30s`, `1h 30min` as one quantity, in the smaller of its units; None where it is none."""
    found = TIME.findall(text)
    if len(found) < 2 or TIME.sub("", text).strip():
        return None
    smallest = min((unit for _, unit in found), key=lambda unit: words.DURATION_UNITS[unit])
    whole = sum(float(number) * words.DURATION_UNITS[unit] for number, unit in found)
    return f"{whole / words.DURATION_UNITS[smallest]:g}{smallest}"
