"""Rows of cells as aligned columns, one group a size of the pool: what both reports print."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Cells = tuple[str, ...]


def aligned(head: Cells, rows: Iterable[tuple[int, Cells]]) -> list[str]:
    """Lines of a table: the head, then each row with the size of its pool; an empty line before a row of another size.
    The first column stands to the left, the others to the right."""
    table: list[Cells] = [head]
    before: int | None = None
    for size, cells in rows:
        if size != before is not None:
            table.append(("",) * len(head))
        before = size
        table.append(cells)
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [_line(cells, widths) for cells in table]


def _line(cells: Cells, widths: Sequence[int]) -> str:
    first, *rest = (
        cell.ljust(width) if place == 0 else cell.rjust(width)
        for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return "  ".join((first, *rest)).rstrip()
