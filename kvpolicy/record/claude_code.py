"""Claude Code's session files: each assistant message is a call whose prompt is all before it in its chain.

The system prompt and the tools stand in no such file: what the counted tokens have beyond the text is taken as one run
at the head.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload

from kvpolicy.record.calls import BYTES, Piece, Recorded
from kvpolicy.record.pieces import pieces
from kvpolicy.record.reading import MOST_TOKENS, Lines, answered, guarded, name_of, objects, sound
from kvpolicy.record.times import seconds

_COUNTED = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


def claude_code(lines: Lines, counts: Counter[str]) -> Iterator[Recorded]:
    """One call an assistant message, however many rows it is written in."""
    rows = [row for row in objects(lines, counts) if isinstance(row.get("message"), Mapping)]
    session = _Session(rows)
    for row in rows:
        call = guarded(counts, session.read, row)
        if call is not None:
            yield call


class _Chain(Sequence[Piece]):
    """The pieces up to a row, that row's with them: its own behind its parent's, so that a session costs its length.
    estimated: tokens of all of them."""

    __slots__ = ("_own", "_parent", "estimated")

    def __init__(self, parent: _Chain | None, own: Sequence[Piece]) -> None:
        self._parent, self._own = parent, own
        self.estimated: int = (0 if parent is None else parent.estimated) + sum(map(_estimate, own))

    def __iter__(self) -> Iterator[Piece]:
        links: list[_Chain] = []
        link: _Chain | None = self
        while link is not None:
            links.append(link)
            link = link._parent
        for each in reversed(links):
            yield from each._own

    @overload
    def __getitem__(self, place: int) -> Piece: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Piece]: ...
    def __getitem__(self, place: int | slice) -> Piece | Sequence[Piece]:
        return list(self)[place]

    def __len__(self) -> int:
        return sum(1 for _ in self)


class _Session:
    """One file, row by row."""

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self._parts: dict[str, list[Mapping[str, Any]]] = {}  # of each message, by its id: rows come one a content
        for row in rows:
            if row["message"].get("id"):
                self._parts.setdefault(str(row["message"]["id"]), []).append(row["message"])
        self._chains: dict[str, _Chain] = {}
        self._heads: dict[str, int] = {}
        self._seen: set[str] = set()

    def read(self, row: Mapping[str, Any]) -> Recorded | None:
        """The call that a row begins, if it does."""
        message, key, parent = row["message"], str(row.get("uuid")), row.get("parentUuid")
        before = self._chains.get(str(parent), _NOTHING) if parent else _NOTHING
        self._chains[key] = before  # stands if the row cannot be read: its chain goes on without it
        self._chains[key] = _Chain(before, pieces({"messages": [message]}))
        usage = message["usage"] if isinstance(message.get("usage"), Mapping) else {}
        call = str(message.get("id") or row.get("requestId") or key)
        if message.get("role") != "assistant" or call in self._seen:
            return None
        session, agent = str(row.get("sessionId") or ""), "sidechain" if row.get("isSidechain") else "main"
        counted = sum(usage.get(name) or 0 for name in _COUNTED)
        if counted > MOST_TOKENS:
            raise ValueError("a count of tokens is none")
        stop, names, output = _spoken(self._parts.get(call, [message]))
        chain = f"{session} {agent}"
        made = sound(Recorded(
            seconds(row.get("timestamp")), (), {"session": session, "agent": agent},
            name_of(message.get("model")), stop, names, output,
        ))  # fmt: skip
        # Last: of a row that is refused nothing is remembered; another row of its message may be sound.
        self._seen.add(call)
        made.pieces = before
        made.head = (chain, self._heads.setdefault(chain, max(0, counted - before.estimated)))
        return made


def _estimate(piece: Piece) -> int:
    return -(-len(piece.text.encode("utf-8", "surrogatepass")) // BYTES)


_NOTHING = _Chain(None, ())


def _spoken(messages: Sequence[Mapping[str, Any]]) -> tuple[str | None, list[str], int | None]:
    names: list[str] = []
    stop, output = None, None
    for message in messages:
        said, more, count = answered(message)
        names += more
        stop, output = said or stop, count if count is not None else output
    return ("tool_use" if names else stop), names, output
