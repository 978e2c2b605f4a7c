"""The Bailian form: `chat_id`, `parent_chat_id`, `timestamp` (s), `type`, `turn`, `hash_ids`, 16-token blocks.

A chat's root is its session: `parent_chat_id` leads back to it (memory: one dictionary entry per chat).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kvpolicy.faults import InputFault
from kvpolicy.request import Request
from kvpolicy.simulate import fields
from kvpolicy.simulate.clock import Clock
from kvpolicy.simulate.fields import Row
from kvpolicy.simulate.gather import Gather
from kvpolicy.simulate.trace import Answer, Call, Facts, owner_of

BLOCK_SIZE = 16


def fits(row: Row) -> bool:
    """Is this the first row of such a trace?"""
    return "chat_id" in row and "hash_ids" in row


def calls(path: Path, rows: Iterator[tuple[int, Row]], first: tuple[int, Row], facts: Facts) -> Iterator[Call]:
    """The trace's calls in file order."""
    clock = Clock(path, *first, unit="s", key="timestamp")
    gather = Gather(path, facts, clock.unit, clock.stated)
    roots: dict[str, str] = {}
    for line, row in rows:
        tokens = fields.whole(path, line, row, "input_length")
        block_size = fields.whole(path, line, row, "block_size", BLOCK_SIZE)
        if block_size == 0:
            raise InputFault(f"{path}:{line}: block_size is 0; it is the tokens of one block, such as {BLOCK_SIZE}")
        hashes = fields.blocks(path, line, row, "hash_ids")
        fields.check_count(path, line, len(hashes), tokens, block_size)
        chat = fields.text(path, line, row, "chat_id")
        if chat is None:
            raise InputFault(f"{path}:{line}: chat_id is missing; every row of this form has one")
        parent = fields.text(path, line, row, "parent_chat_id")
        session = roots[chat] = roots.get(parent, chat) if parent is not None else chat
        attributes: dict[str, object] = {"turn": fields.whole(path, line, row, "turn", 1)}
        request = Request(f"r{facts.requests}", owner_of(session), tokens, block_size, (), None, attributes)
        # Chat traffic: a person reads every answer.
        answer = Answer("end_turn", (), fields.whole(path, line, row, "output_length", 0))
        yield gather.call(line, Call(request, hashes, clock.seconds(line, row), answer))
    gather.end()
