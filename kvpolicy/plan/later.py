"""A sequence that is made when somebody looks at it: most plans are read again before anybody has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar, overload

Row = TypeVar("Row")


class Later(Sequence[Row]):
    """Equal to the tuple of its rows. make: gives them, from nothing that can change."""

    __slots__ = ("_make", "_rows")

    def __init__(self, make: Callable[[], tuple[Row, ...]]) -> None:
        self._make: Callable[[], tuple[Row, ...]] | None = make
        self._rows: tuple[Row, ...] = ()

    @property
    def rows(self) -> tuple[Row, ...]:
        """All of them."""
        make, self._make = self._make, None
        if make is not None:
            self._rows = make()
        return self._rows

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, place: int) -> Row: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[Row, ...]: ...

    def __getitem__(self, place: int | slice) -> Row | tuple[Row, ...]:
        return self.rows[place]

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __eq__(self, other: object) -> bool:
        return self.rows == (other.rows if isinstance(other, Later) else other)

    __hash__ = None  # type: ignore[assignment]  # rows hold dictionaries

    def __repr__(self) -> str:
        return repr(self.rows)
