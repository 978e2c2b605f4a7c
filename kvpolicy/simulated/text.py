"""Tokens of a text: a small deterministic tokenizer, whose pieces put together again are the text.

No model's vocabulary: a piece is a word of up to six letters with the space before it, up to three digits, or one other
character. Its id is a keyed hash of the piece, the same in every process. Read by `chat` and by the routes that tell
tokens.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b

_PIECES = re.compile(r" ?[^\W\d_]{1,6}| ?\d{1,3}|.", re.DOTALL)
SPECIAL = 1 << 16  # ids below are kept for control tokens and for those that a client states itself
CACHED = 4_000  # characters: longer texts are not remembered


@lru_cache(maxsize=65_536)
def token_id(piece: str) -> int:
    """The id of a piece: a hash above the control tokens, of 31 bits as a real vocabulary's ids have at most."""
    digest = blake2b(piece.encode("utf-8", "surrogatepass"), digest_size=6, key=b"kvp-simulated").digest()
    return SPECIAL + int.from_bytes(digest, "big") % ((1 << 31) - SPECIAL)


def pieces(text: str) -> list[str]:
    """The pieces of a text, in order."""
    return _PIECES.findall(text)


def tokens(text: str) -> Sequence[int]:
    """The token ids of a text."""
    return _remembered(text) if len(text) <= CACHED else [token_id(piece) for piece in pieces(text)]


@lru_cache(maxsize=4_096)
def _remembered(text: str) -> tuple[int, ...]:
    return tuple(token_id(piece) for piece in pieces(text))


def control(name: str) -> int:
    """The id of a control token such as `<|user|>`: below `SPECIAL`, by name."""
    return int.from_bytes(blake2b(name.encode(), digest_size=2, key=b"kvp-control").digest(), "big")
