"""Logs of several makers as recorded calls. Lines that are none are passed over and counted; a file with no call at all
is refused by who reads it. One reader a form, each in a file of its own; `form_of` tells which one a file needs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from kvpolicy.record.calls import Recorded
from kvpolicy.record.claude_code import claude_code
from kvpolicy.record.decisions import decisions
from kvpolicy.record.openai_log import openai
from kvpolicy.record.reading import Lines, parsed
from kvpolicy.record.vllm_log import LINE, vllm

FORMS: Mapping[str, Callable[[Lines, Counter[str]], Iterator[Recorded]]] = {
    "openai": openai,
    "claude-code": claude_code,
    "vllm": vllm,
    "decisions": decisions,
}


def form_of(line: str) -> str | None:
    """The form that a file's first line shows; None where it shows none."""
    if LINE.search(line) or re.match(r"\S* ?(INFO|DEBUG|WARNING) ", line):
        return "vllm"
    row = parsed(line)
    if not isinstance(row, dict):
        return None
    if {"outcome", "dialect", "digest"} <= row.keys():
        return "decisions"
    if "sessionId" in row or row.get("type") in ("summary", "file-history-snapshot", "queue-operation"):
        return "claude-code"
    return "openai"
