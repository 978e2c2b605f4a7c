"""The clock of a trace: which unit its times are in, and what cannot be in it."""

from __future__ import annotations

from pathlib import Path

from kvpolicy.faults import InputFault
from kvpolicy.simulate.fields import Row, number

SECONDS_PER: dict[str, float] = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
_LATEST_S = 100 * 365.25 * 86400.0  # no clock since 1970 shows more


class Clock:
    """Times of one trace, as seconds. `unit` is the form's own unless the first row states `time_unit`."""

    def __init__(self, path: Path, line: int, first: Row, unit: str, key: str) -> None:
        stated = first.get("time_unit")
        if stated is not None and not (isinstance(stated, str) and stated in SECONDS_PER):
            raise InputFault(f"{path}:{line}: time_unit is {stated!r}; it is one of s, ms, us")
        self.stated = stated is not None
        self.unit = str(stated) if stated is not None else unit
        self._scale = SECONDS_PER[self.unit]
        self._path, self._key = path, key

    def seconds(self, line: int, row: Row) -> float:
        """The row's time in seconds."""
        value = number(self._path, line, row, self._key)
        if self.unit == "ms" and not self.stated and not value.is_integer():
            raise InputFault(
                f"{self._path}:{line}: {self._key} is {value:g}, where this form counts whole milliseconds; "
                f'convert, or state "time_unit": "s" in the first row'
            )
        seconds = value * self._scale
        if seconds > _LATEST_S:
            raise InputFault(
                f"{self._path}:{line}: {self._key} is {value:g}, which is {seconds / 31557600:.0f} years in "
                f"{self.unit}; "
                f'convert, or state "time_unit" in the first row'
            )
        return seconds
