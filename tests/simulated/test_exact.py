"""`cached_tokens` against a count of its own: vLLM's order of eviction as a list, written out plainly."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.simulated.running import running

BLOCKS, SIZE = 40, 16


class Reference:
    """Blocks by the whole prefix that they end. One request at a time; nobody claims anything."""

    def __init__(self) -> None:
        self.idle: list[tuple[int, ...]] = []  # the first leaves first

    def request(self, prompt: list[int], answer: list[int]) -> int:
        """Tokens found cached for a prompt, when its answer turns out to be this."""
        whole = [*prompt, *answer[:-1]]  # the KV of an answer's last token is never computed
        names = [tuple(whole[:end]) for end in range(SIZE, len(whole) + 1, SIZE)]
        own = names[: len(prompt) // SIZE]
        hits = 0
        while hits < len(own) and own[hits] in self.idle:
            hits += 1
        held: list[tuple[int, ...]] = []
        for place, name in enumerate(names):
            if (place < hits or place >= len(own)) and name in self.idle:
                self.idle.remove(name)
            held.append(name)
        while len(held) + 1 + len(self.idle) > BLOCKS:  # and the block that is being filled
            self.idle.pop(0)
        self.idle = [name for name in self.idle if name not in held] + held[::-1]
        return min(hits, (len(prompt) - 1) // SIZE) * SIZE


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running("engine", "--blocks", str(BLOCKS), "--block-size", str(SIZE), "--decode-s", "0") as at:
        yield at


def ask(url: str, prompt: list[int], most: int) -> tuple[int, list[int]]:
    body: dict[str, Any] = {"model": "sim", "prompt": prompt, "max_tokens": most, "ignore_eos": True}
    row = httpx.post(f"{url}/v1/completions", json=body, timeout=30).json()
    text = row["choices"][0]["text"]
    made = httpx.post(f"{url}/tokenize", json={"prompt": text}, timeout=30).json()["tokens"]
    assert len(made) == row["usage"]["completion_tokens"] == most
    return row["usage"]["prompt_tokens_details"]["cached_tokens"], made


@pytest.mark.parametrize("seed", range(3))
def test_cached_tokens_are_those_of_an_independent_count(url: str, seed: int) -> None:
    httpx.post(f"{url}/reset_prefix_cache")
    dice, reference = random.Random(seed), Reference()
    talks: list[list[int]] = [[dice.randrange(9, 9000) for _ in range(60)] for _ in range(5)]
    told, counted = [], []
    for _ in range(60):
        talk = dice.choice(talks)
        if len(talk) > 300:
            del talk[60:]  # a new conversation under the same head
        talk += [dice.randrange(9, 9000) for _ in range(dice.randrange(1, 50))]
        cached, answer = ask(url, talk, dice.randrange(1, 60))
        told.append(cached)
        counted.append(reference.request(talk, answer))
        talk += answer
    assert told == counted
    assert 0 in told and max(told) > 100


@pytest.mark.parametrize(
    ("method", "path", "status", "words"),
    [
        ("POST", "/v1/embeddings", 404, ("NotFoundError", 404)),
        ("POST", "/v1/audio/transcriptions", 404, ("NotFoundError", 404)),
        ("GET", "/v1/chat/completions", 405, ("MethodNotAllowed", 405)),
        ("POST", "/v1/messages/batches", 404, ("not_found_error", None)),
        ("GET", "/v1/messages", 405, ("invalid_request_error", None)),
    ],
)
def test_routes_that_are_not_there_say_so_in_the_dialects_words(
    url: str, method: str, path: str, status: int, words: tuple[str, int | None]
) -> None:
    answer = httpx.request(method, url + path, json={})
    assert answer.status_code == status and answer.headers["x-kvp-simulated"] == "1"
    document = answer.json()
    assert path in document["error"]["message"]
    assert (document["error"]["type"], document["error"].get("code")) == words
    assert document.get("type") == ("error" if path.startswith("/v1/messages") else None)


def test_the_sdks_turn_them_into_their_own_errors(url: str) -> None:
    openai, anthropic = pytest.importorskip("openai"), pytest.importorskip("anthropic")
    with pytest.raises(openai.NotFoundError, match="no such route"):
        openai.OpenAI(base_url=f"{url}/v1", api_key="none").embeddings.create(model="sim", input="x")
    client = anthropic.Anthropic(base_url=url, api_key="none").messages
    with pytest.raises(anthropic.NotFoundError, match="no such route"):
        client.batches.list()
    ask = {"model": "sim", "messages": [{"role": "user", "content": "how long is this?"}]}
    assert client.count_tokens(**ask).input_tokens == client.create(**ask, max_tokens=1).usage.input_tokens
