"""A body of 200,000 tokens and more never makes the process grow by more than three times its length."""

from __future__ import annotations

import asyncio
import re
from array import array
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import orjson
import pytest

from kvpolicy.service.tokenizing import Agreeing, read_tokens
from tests.service.test_edge_passing import PATH, until
from tests.service.through import Through
from tests.service.upstream import OK, Asked, upstream
from tests.simulated.running import started

TIMES = 3


def prompt(words: int, turns: int, seed: int, letter: str = "") -> bytes:
    """A conversation of about so many tokens: 6 bytes each. letter: what one of its messages ends with."""
    each = words // turns
    rows = [
        {
            "role": ("user", "assistant")[n % 2],
            "content": " ".join(f"w{(seed + n * each + k) % 9973:04d}" for k in range(each)),
        }
        for n in range(turns)
    ]
    rows[turns // 2]["content"] += letter
    return orjson.dumps({"model": "m", "messages": rows, "max_tokens": 4})


def memory(pid: int, name: str) -> int:
    """VmRSS: what the process has now; VmHWM: the most it has had since that was cleared. Bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith(name)).split()[1]) * 1024


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
@pytest.mark.parametrize(("words", "letter"), [(200_000, ""), (400_000, ""), (200_000, "\N{GRINNING FACE}"),
                                               (400_000, "\N{GRINNING FACE}"), (400_000, "\N{EN DASH}")])  # fmt: skip
def test_a_long_prompt_is_not_copied_more_than_three_times(words: int, letter: str) -> None:
    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        if asked.line.startswith("POST /tokenize"):
            count = len(re.findall(rb"\bw\d", asked.body))
            tokens = b",".join(b"%d" % (n % 150_000) for n in range(count))
            body = b'{"count":%d,"max_model_len":1000000,"tokens":[%s]}' % (count, tokens)
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
        else:
            await asyncio.sleep(1 if len(asked.body) > 1 << 20 else 0)  # a long prompt takes its time
            writer.write(OK)

    with upstream(answer) as engine, started("serve", "--upstream", engine.url) as told:
        pid, at, headers = told["pid"], told["url"], {"content-type": "application/json"}
        gateway = Through(at, engine.url)

        def fetched() -> float:
            """Prompts whose tokens have been asked, all of it."""
            return gateway.counter("kvpolicy_places_total", what="fetched")

        # Everything that is loaded, built or kept once is there before the long one comes, and nothing else runs.
        for seed in range(3):
            assert httpx.post(at + PATH, content=prompt(4_000, 40, seed), headers=headers).status_code == 200
        assert until(lambda: fetched() == 3)
        body = prompt(words, 40, 7, letter)
        Path(f"/proc/{pid}/clear_refs").write_text("5")
        before, asked = memory(pid, "VmRSS"), len(engine.asked)
        assert httpx.post(at + PATH, content=body, headers=headers, timeout=60).status_code == 200
        assert until(lambda: fetched() == 4, 60)  # the tokens are asked beside it
        assert len(engine.asked) > asked + 3
        grown = memory(pid, "VmHWM") - before
        times = grown / len(body)
        print(f"{words:,} tokens {letter}, body {len(body) / 2**20:.2f} MiB, peak grew by {times:.2f} times that")
        assert grown <= TIMES * len(body)


async def _pieces(data: bytes, size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


@pytest.mark.parametrize("size", [1, 2, 7, 64, 10_000])
@pytest.mark.parametrize(
    ("text", "count", "tokens"),
    [
        (b'{"count":3,"max_model_len":9,"tokens":[1,22,333],"token_strs":null}', 3, [1, 22, 333]),
        (b'{"tokens" : [ 1 , 2 ] , "count" : 2 , "other":[5,6]}', 2, [1, 2]),
        (b'{"count":0,"tokens":[]}', 0, []),
        (b'{"tokens":[7]}', 1, [7]),
        (b'{"count":4}', 4, []),
    ],
)
def test_tokens_are_read_wherever_the_pieces_end(size: int, text: bytes, count: int, tokens: list[int]) -> None:
    told = asyncio.run(read_tokens(_pieces(text, size)))
    assert told.count == count
    assert told.tokens == array("I", tokens)


@pytest.mark.parametrize("size", [1, 3, 10_000])
@pytest.mark.parametrize(
    ("tokens", "begins"),
    [([], True), ([5], True), ([5, 60, 700], True), ([5, 61], False), ([6], False), ([5, 60, 700, 8], False)],
)
def test_tokens_are_compared_as_they_come(size: int, tokens: list[int], begins: bool) -> None:
    agreeing = Agreeing(array("I", [5, 60, 700]))
    data = orjson.dumps({"count": len(tokens), "tokens": tokens})
    told = asyncio.run(read_tokens(_pieces(data, size), agreeing))
    assert (len(agreeing), agreeing.so_far) == (len(tokens), begins)
    assert not told.tokens  # nothing is kept


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[1]", b'{"tokens":[1,x]}', b'{"tokens":[1,', b'{"tokens":[-1]}', b'{"a":1}']
)
def test_what_is_no_such_answer_is_a_fault(text: bytes) -> None:
    with pytest.raises(ValueError):
        asyncio.run(read_tokens(_pieces(text, 5)))
