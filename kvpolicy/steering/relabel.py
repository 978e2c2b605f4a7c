"""An answer's parts are known: the open output span becomes the spans that it was made of. A re-ranking, no request.

Called by `Steering.finish` before the request lets go of its blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kvpolicy.blocks import Layout, lay_out
from kvpolicy.faults import InputFault
from kvpolicy.request import Request, Span


def with_parts(request: Request, parts: Sequence[Span], blocks: int) -> tuple[Request, Layout]:
    """The request with its output as `parts`, and its layout. blocks: how many full blocks it has by now.

    Raises InputFault where the parts do not begin in the output, or reach beyond what was generated.
    """
    output = next((span for span in request.spans if span.end is None), None)
    start = request.tokens if output is None else output.start
    end = max(part.end or 0 for part in parts)
    if min(part.start for part in parts) < start or any(part.end is None for part in parts):
        raise InputFault(f"the parts of an answer lie behind token {start}, and each has an end")
    if end >= (blocks + 1) * request.block_size:
        raise InputFault(f"the parts of the answer reach token {end}; only {blocks} blocks are computed")
    kept = tuple(span for span in request.spans if span is not output)
    asked = replace(request, tokens=max(end, request.tokens), spans=(*kept, *parts))
    return asked, lay_out(asked)
