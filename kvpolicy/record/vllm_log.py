"""What vLLM logs with `--enable-log-requests`: `Received request ID: prompt: '…', … prompt_token_ids: […]`. Without
token ids and prompt (newer versions log them at DEBUG only) a line says nothing of what is shared."""

from __future__ import annotations

import re
from ast import literal_eval
from collections import Counter
from collections.abc import Iterator
from datetime import datetime

from kvpolicy.record.calls import Piece, Recorded
from kvpolicy.record.reading import Lines, guarded

LINE = re.compile(r"(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:[.,](\d+))?.*?Received request ([^\s:]+)")
_IDS = re.compile(r"prompt_token_ids: (\[[^\]]*\])")
_YEAR = 2024  # of a log's first line: only differences count
_PROMPT = re.compile(r"prompt: (?='|\")")


def vllm(lines: Lines, counts: Counter[str]) -> Iterator[Recorded]:
    """One call a line that tells of a request."""
    year, before = _YEAR, 1
    for line in lines:
        told = LINE.search(line)
        if told is None:
            counts["other"] += 1
            continue
        month = int(told[1])
        year += before == 12 and month == 1  # lines name no year
        before = month
        call = guarded(counts, _call, line, told, year)
        if call is not None:
            yield call


def _call(line: str, told: re.Match[str], year: int) -> Recorded:
    month, day, hour, minute, second = (int(part) for part in told.groups()[:5])
    at = datetime(year, month, day, hour, minute, second).timestamp() + float(f"0.{told[6] or 0}")
    text, end = _quoted(line)
    ids = _IDS.search(line, end)  # behind the prompt, whose words are its writer's
    if ids is None and not text:
        raise ValueError("neither token ids nor a prompt")
    numbers = None if ids is None else [int(each) for each in ids[1][1:-1].split(",") if each.strip()]
    return Recorded(at, [Piece("turn", "" if numbers is not None else text, numbers)])


def _quoted(line: str) -> tuple[str, int]:
    """The prompt, and where what follows it begins."""
    begin = _PROMPT.search(line)
    if begin is None:
        return "", 0
    quote = line[begin.end()]
    end = begin.end() + 1
    while end < len(line) and line[end] != quote:
        end += 2 if line[end] == "\\" else 1
    try:
        return str(literal_eval(line[begin.end() : end + 1])), end
    except (ValueError, SyntaxError):
        return "", end
