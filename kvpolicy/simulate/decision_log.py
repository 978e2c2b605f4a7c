"""A service's decision log as a trace: what was asked, by whom, when, and how long prompts and answers were.

The log has no block's name and no word of a prompt, so blocks are made up. Where a row has keyed digests of its
messages (`prefix`), each of all up to its end, a block is named by the digest in which it ends, and what sessions share
is seen; how long a part is, `prompt_parts` tells. A row without them: an owner's prompt begins with all of its previous
one, block by block, until a prompt is shorter than the one before or another model is asked; then its history counts as
written anew, and heads count as each session's own. Rows are written when an exchange ends; they are put in the order
in which they arrived, so the log is held in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kvpolicy import words
from kvpolicy.faults import Notice
from kvpolicy.request import Owner, Request, Span
from kvpolicy.simulate import fields
from kvpolicy.simulate.fields import Row
from kvpolicy.simulate.gather import Gather
from kvpolicy.simulate.prompt_parts import Parts
from kvpolicy.simulate.trace import END_TURN, TOOL_USE, Answer, Call, Facts

BLOCK_SIZE = 64  # tokens of the blocks that are made up


def fits(row: Row) -> bool:
    """Is this a row of a decision log?"""
    return "digest" in row and "prompt_tokens" in row and "outcome" in row


def calls(path: Path, rows: Iterator[tuple[int, Row]], first: tuple[int, Row], facts: Facts) -> Iterator[Call]:
    """The calls that were answered, by arrival."""
    known: list[tuple[float, int, Row]] = []
    left_out = 0
    for line, row in rows:
        if not fits(row) or row.get("prompt_tokens") is None or row.get("owner") is None:
            left_out += 1
            continue
        ended = fields.number(path, line, row, "at")
        known.append((ended - fields.number(path, line, row, "seconds"), line, row))
    known.sort(key=lambda timed: timed[:2])
    gather = Gather(path, facts, "s", True)
    facts.notices.append(Notice("BLOCK_SIZE_MISMATCH", _said([row for _, _, row in known], left_out)))
    blocks = _Blocks(path)
    for arrived, line, row in known:
        call = _call(path, line, row, arrived - known[0][0], blocks)
        yield gather.call(line, call)
    gather.end()


class _Blocks:
    """Names of blocks that no log has."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._parts: dict[str | None, Parts] = {}  # by model: each counts tokens its own way
        self._chains: dict[tuple[str, str], tuple[int, int, str | None]] = {}  # of each owner: history, tokens, model

    def names(self, line: int, row: Row, tenant: str, session: str, model: str | None, tokens: int) -> list[str]:
        """One for each full block of a prompt."""
        digests = fields.strings(self._path, line, row, "prefix")
        if not digests:
            return self._grown(tenant, session, model, tokens)
        ends = self._parts.setdefault(model, Parts()).ends(digests, tokens)
        found, part = [], 0
        for block in range(tokens // BLOCK_SIZE):
            while part < len(ends) - 1 and ends[part] < (block + 1) * BLOCK_SIZE:
                part += 1
            # INVARIANT: a digest fixes all parts before it, so a name fixes all blocks before it.
            found.append(f"{tenant}/{model}/{digests[part]}/{block}")
        return found

    def _grown(self, tenant: str, session: str, model: str | None, tokens: int) -> list[str]:
        number, before, its = self._chains.get((tenant, session), (0, 0, model))
        if tokens < before or model != its:
            number += 1
        self._chains[tenant, session] = number, tokens, model
        return [f"{tenant}/{session}/{number}/{k}" for k in range(tokens // BLOCK_SIZE)]


def _call(path: Path, line: int, row: Row, at: float, blocks: _Blocks) -> Call:
    tokens = fields.whole(path, line, row, "prompt_tokens")
    tenant, session = str(row.get("tenant") or "default"), str(row["owner"])
    model = fields.text(path, line, row, "model")
    hashes = blocks.names(line, row, tenant, session, model, tokens)
    output = fields.whole(path, line, row, "output_tokens", 0) if row.get("output_tokens") is not None else 0
    tools = fields.whole(path, line, row, "tool_calls", 0)
    answer = Answer(TOOL_USE if tools else END_TURN, (None,) * tools, output)
    owner = Owner(tenant=tenant, session=session, run=fields.text(path, line, row, "run"))
    request = Request(f"{session}#{line}", owner, tokens, BLOCK_SIZE, _spans(row, tokens), model, {})
    return Call(request, hashes, at, answer, took=fields.seconds(path, line, row, "seconds"))


def _said(rows: list[Row], left_out: int) -> str:
    """How the blocks were made up."""
    named = sum(bool(row.get("prefix")) for row in rows)
    said = []
    if named:
        said.append(
            "blocks are made up from digests of messages: what sessions share is seen, and how long it is, only about"
        )
    if named < len(rows):
        these = "blocks" if not named else f"in {len(rows) - named} rows without digests they"
        said.append(f"{these} are made up from lengths: heads that sessions share count as each session's own")
    if left_out:
        said.append(f"{left_out} rows without an owner or a length were left out")
    return "; ".join(said)


def _spans(row: Row, tokens: int) -> tuple[Span, ...]:
    """The logged spans, as far as the prompt goes; the rest of it is a turn."""
    spans, at = [], 0
    logged = row.get("spans")
    for one in logged if isinstance(logged, list) else ():
        kind, length = (one.get("kind"), one.get("tokens")) if isinstance(one, dict) else (None, None)
        if kind not in words.SPAN_KINDS or kind == "output" or not isinstance(length, int) or length <= 0:
            continue
        end = min(tokens, at + length)
        if end > at:
            spans.append(Span(kind, at, end))
            at = end
    if at < tokens:
        spans.append(Span("turn", at, tokens))
    return tuple(spans)
