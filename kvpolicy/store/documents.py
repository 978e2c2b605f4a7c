"""Documents in-process: JSON that each source keeps of a kind and a tenant, with its end."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from kvpolicy.faults import InputFault
from kvpolicy.store.contract import Document

MOST_SOURCES = 64  # of one kind and tenant; the longest unchanged leave first
LARGEST_B = 4 << 20

Kept = dict[str, tuple[float, Document]]  # by source, the longest unchanged first: when it ends, and the document


def dumped(body: Mapping[str, object]) -> bytes:
    """A document as bytes. Raises InputFault for one that is no JSON or is too large."""
    import orjson

    try:
        data = orjson.dumps(dict(body))
    except TypeError as fault:
        raise InputFault(f"a document that is no JSON: {fault}") from None
    if len(data) > LARGEST_B:
        raise InputFault(f"a document of {len(data)} bytes; at most {LARGEST_B} are kept")
    return data


class Documents:
    """All of them."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], Kept] = {}

    def put(self, kind: str, tenant: str, document: Document, ends: float, now: float) -> None:
        """Keep it in place of the one its source had; it is a copy that is kept. Raises InputFault for no JSON."""
        import orjson

        copied = Document(document.source, document.at, orjson.loads(dumped(document.body)))
        kept = self._kept.setdefault((kind, tenant), {})
        kept.pop(document.source, None)
        kept[document.source] = (ends, copied)
        for source in [source for source, (end, _) in kept.items() if end <= now]:
            del kept[source]
        while len(kept) > MOST_SOURCES:
            del kept[next(iter(kept))]

    def all(self, kind: str, tenant: str, now: float) -> tuple[Document, ...]:
        """Those of all sources, the newest first."""
        kept = self._kept.get((kind, tenant), {})
        return tuple(document for end, document in reversed(kept.values()) if end > now)

    def export(self, kind: str, tenant: str) -> dict[str, Any]:
        """Those of one kind and tenant as JSON."""
        kept = self._kept.get((kind, tenant), {})
        rows = [[source, document.at, end, document.body] for source, (end, document) in kept.items()]
        return {"kind": kind, "tenant": tenant, "documents": rows}

    def load(self, document: Mapping[str, Any], now: float) -> None:
        """Take what `export` gave. Raises InputFault, changing nothing, for anything else."""
        kept: Kept = {}
        try:
            kind, tenant = str(document["kind"]), str(document["tenant"])
            for source, at, end, body in document["documents"]:
                if not isinstance(body, dict) or not (math.isfinite(at) and math.isfinite(end)):
                    raise ValueError("a row")
                if end > now:
                    kept[str(source)] = (float(end), Document(str(source), float(at), body))
        except (KeyError, TypeError, ValueError) as fault:
            raise InputFault(f"documents that do not fit: {fault}") from None
        self._kept[(kind, tenant)] = kept
