"""Claude Code's session files: each assistant message is a call whose prompt is all before it in its chain.

The system prompt and the tools stand in no such file: what the counted tokens have beyond the text is taken as one run
at the head.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kvpolicy.record.calls import BYTES, Piece, Recorded
from kvpolicy.record.pieces import pieces
from kvpolicy.record.reading import MOST_TOKENS, Lines, answered, guarded, name_of, objects, seconds

_COUNTED = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


def claude_code(lines: Lines, counts: Counter[str]) -> Iterator[Recorded]:
    """One call an assistant message, however many rows it is written in."""
    rows = [row for row in objects(lines, counts) if isinstance(row.get("message"), Mapping)]
    session = _Session(rows)
    for row in rows:
        call = guarded(counts, session.read, row)
        if call is not None:
            yield call


class _Session:
    """One file, row by row."""

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self._parts: dict[str, list[Mapping[str, Any]]] = {}  # of each message, by its id: rows come one a content
        for row in rows:
            if row["message"].get("id"):
                self._parts.setdefault(str(row["message"]["id"]), []).append(row["message"])
        self._texts: dict[str, list[Piece]] = {}  # up to each row, that row's with it
        self._heads: dict[str, int] = {}
        self._seen: set[str] = set()

    def read(self, row: Mapping[str, Any]) -> Recorded | None:
        """The call that a row begins, if it does."""
        message, key, parent = row["message"], str(row.get("uuid")), row.get("parentUuid")
        before = self._texts.get(str(parent), []) if parent else []
        self._texts[key] = before  # stands if the row cannot be read: its chain goes on without it
        self._texts[key] = [*before, *pieces({"messages": [message]})]
        usage = message["usage"] if isinstance(message.get("usage"), Mapping) else {}
        call = str(message.get("id") or row.get("requestId") or key)
        if message.get("role") != "assistant" or call in self._seen:
            return None
        self._seen.add(call)
        session, agent = str(row.get("sessionId") or ""), "sidechain" if row.get("isSidechain") else "main"
        chain = f"{session} {agent}"
        counted = sum(usage.get(name) or 0 for name in _COUNTED)
        if counted > MOST_TOKENS:  # before a head is remembered by it
            raise ValueError("a count of tokens is none")
        estimated = sum(-(-len(piece.text.encode("utf-8", "surrogatepass")) // BYTES) for piece in before)
        head = self._heads.setdefault(chain, max(0, counted - estimated))
        stop, names, output = _spoken(self._parts.get(call, [message]))
        return Recorded(
            seconds(row.get("timestamp")) or 0.0, before, {"session": session, "agent": agent},
            name_of(message.get("model")), stop, names, output, None, None, (chain, head),
        )  # fmt: skip


def _spoken(messages: Sequence[Mapping[str, Any]]) -> tuple[str | None, list[str], int | None]:
    names: list[str] = []
    stop, output = None, None
    for message in messages:
        said, more, count = answered(message)
        names += more
        stop, output = said or stop, count if count is not None else output
    return ("tool_use" if names else stop), names, output
