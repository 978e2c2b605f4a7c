"""How far a replay is, on stderr: a bar on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import sys
from time import monotonic
from types import TracebackType
from typing import TextIO

_WIDTH = 32
_REDRAW_S, _LINE_S = 0.1, 5.0


class Bar:
    """Called with the fraction done; cleared when the block ends."""

    def __init__(self, what: str, stream: TextIO | None = None) -> None:
        self._what = what
        self._stream = sys.stderr if stream is None else stream
        self._live = self._stream.isatty()
        self._began = self._shown = monotonic()
        self._drawn = False

    def __call__(self, fraction: float) -> None:
        now = monotonic()
        if now - self._shown < (_REDRAW_S if self._live else _LINE_S):
            return
        self._shown = now
        percent, passed = round(100 * fraction), now - self._began
        if self._live:
            full = round(_WIDTH * min(fraction, 1.0))
            self._stream.write(f"\r{self._what} [{'#' * full}{'.' * (_WIDTH - full)}] {percent:3} % {passed:5.1f} s")
            self._drawn = True
        else:
            self._stream.write(f"{self._what}: {percent} % after {passed:.0f} s\n")
        self._stream.flush()

    def __enter__(self) -> Bar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._drawn:
            self._stream.write("\r\033[K")
            self._stream.flush()
