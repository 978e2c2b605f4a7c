"""Calls of a recording: pieces of text become tokens, spans and block hashes; nothing else of them is kept.

Tokens are estimated where nobody counted them: `BYTES` bytes of text each. A block's hash covers all before it, keyed
with a secret of this recording, so that equal prompts are seen to be equal, and nobody can look a text up.
"""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import IO, Any

from kvpolicy.simulate.own import HEADER, VERSION

BYTES = 4  # a token of English text and code, about


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of a prompt: its kind (of spans), its text, or the ids of its tokens; attributes: `tool name`."""

    kind: str
    text: str = ""
    ids: Sequence[int] | None = None
    attributes: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class Recorded:
    """One call. at, took: seconds, on any clock, None: unknown; owner: names as found, hashed when written."""

    at: float | None
    pieces: Sequence[Piece]
    owner: dict[str, str | None] = field(default_factory=dict)
    model: str | None = None
    stop: str | None = None
    tool_calls: Sequence[str] = ()
    output_tokens: int | None = None
    took: float | None = None
    units: Sequence[tuple[bytes, int]] | None = None  # where texts are unknown: digests of runs, with their tokens
    head: tuple[str, int] | None = None  # a run before the pieces of which only the length is known, with a name


class Recording:
    """Rows of one trace. block_size: tokens; label: where it comes from; key: of the hashes, by default a fresh one."""

    def __init__(self, label: str, block_size: int = 16, key: bytes | None = None) -> None:
        self.block_size, self.label = block_size, label
        self._key = secrets.token_bytes(32) if key is None else key
        self._number = 0

    def header(self) -> dict[str, Any]:
        """The trace's first row."""
        return {HEADER: VERSION, "block_size": self.block_size, "time_unit": "s", "label": self.label}

    def row(self, call: Recorded, start: float) -> dict[str, Any]:
        """The row of a call. start: seconds, of the trace's beginning, where a call without a time is put."""
        self._number += 1
        symbols, spans = self._laid_out(call)
        at = start if call.at is None else call.at
        row: dict[str, Any] = {"at": round(max(0.0, at - start), 6), "id": f"r{self._number}"}
        owner = {name: self.named(value) for name, value in call.owner.items() if value}
        row |= {"owner": owner} if owner else {}
        row |= {"took": round(call.took, 6)} if call.took is not None and call.took >= 0 else {}
        row |= {"model": call.model} if call.model else {}
        row |= {"tokens": len(symbols), "hashes": self._hashes(symbols), "spans": spans}
        answer: dict[str, Any] = {"stop": call.stop, "tool_calls": list(call.tool_calls)}
        answer["output_tokens"] = call.output_tokens
        kept = {name: value for name, value in answer.items() if value}
        return {**row, **({"answer": kept} if kept else {})}

    def named(self, name: str) -> str:
        """A name as it stands in the trace."""
        return blake2b(name.encode("utf-8", "surrogatepass"), digest_size=6, key=self._key).hexdigest()

    def _laid_out(self, call: Recorded) -> tuple[list[bytes], list[dict[str, Any]]]:
        """One symbol a token, and the spans: neighbours of one kind are one."""
        symbols: list[bytes] = []
        spans: list[dict[str, Any]] = []
        if call.head is not None:
            name, length = call.head
            symbols += [f"{name} {place}".encode("utf-8", "surrogatepass") for place in range(length)]
            spans.append({"kind": "system", "start": 0, "end": length})
        for digest, length in call.units or ():
            symbols += [digest + place.to_bytes(4, "big") for place in range(length)]
        for piece in call.pieces:
            start = len(symbols)
            if piece.ids is not None:
                symbols += [token.to_bytes(8, "big", signed=True) for token in piece.ids]
            else:
                data = piece.text.encode("utf-8", "surrogatepass")
                symbols += [data[place : place + BYTES] for place in range(0, len(data), BYTES)]
            if len(symbols) == start:
                continue
            told = {"kind": piece.kind, **dict(piece.attributes)}
            if spans and {k: v for k, v in spans[-1].items() if k not in ("start", "end")} == told:
                spans[-1]["end"] = len(symbols)
            else:
                spans.append({**told, "start": start, "end": len(symbols)})
        return symbols, spans

    def _hashes(self, symbols: Sequence[bytes]) -> list[str]:
        """One a full block, prefix-chained."""
        before, found = b"", []
        for start in range(0, len(symbols) - self.block_size + 1, self.block_size):
            block = b"\0".join(symbols[start : start + self.block_size])
            before = blake2b(before + block, digest_size=8, key=self._key).digest()
            found.append(before.hex())
        return found


def write(calls: Iterable[Recorded], recording: Recording, out: IO[str]) -> int:
    """The trace, in order of time; calls without one come first. Returns how many calls it has."""
    ordered = sorted(calls, key=lambda call: -math.inf if call.at is None else call.at)
    start = next((call.at for call in ordered if call.at is not None), 0.0)
    out.write(json.dumps(recording.header()) + "\n")
    for call in ordered:
        out.write(json.dumps(recording.row(call, start), separators=(",", ":")) + "\n")
    return len(ordered)
