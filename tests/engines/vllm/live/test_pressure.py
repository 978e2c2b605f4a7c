"""A system prompt under pressure: plain vLLM loses it, a directive keeps it, and no answer changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engines.vllm.live.serving import SYSTEM_TOKENS, USABLE, Answer, Server, directive, letters, prompt

SYSTEM = [{"role": "system", "content": letters(1, 190)}, {"role": "user", "content": "go on"}]
FLOOD = [[{"role": "user", "content": letters(100 + n, 158)}] for n in range(12)]
KEPT = directive("s1", priority=90)


def scene(server: Server, **more: object) -> list[Answer]:
    """The system prompt twice, twelve other requests, the system prompt again."""
    return [
        *(server.chat(SYSTEM, **more) for _ in range(2)),
        *(server.chat(messages) for messages in FLOOD),
        server.chat(SYSTEM, **more),
    ]


@pytest.fixture(scope="module")
def plain(stock: Server) -> list[Answer]:
    stock.post("/reset_prefix_cache")
    return scene(stock)


def cached(answers: list[Answer]) -> tuple[int, int, int]:
    return answers[0].cached, answers[1].cached, answers[-1].cached


def test_the_scene_is_pressure(plain: list[Answer]) -> None:
    assert cached(plain) == (0, SYSTEM_TOKENS, 0)
    assert 190 <= plain[0].prompt < SYSTEM_TOKENS + 32
    assert all(140 <= answer.prompt <= 180 for answer in plain[2:-1])


def test_without_directives_ours_loses_it_like_plain_vllm(steered: Server, plain: list[Answer]) -> None:
    assert cached(scene(steered)) == (0, SYSTEM_TOKENS, 0)


def test_a_directive_keeps_it(steered: Server) -> None:
    assert cached(scene(steered, **KEPT)) == (0, SYSTEM_TOKENS, SYSTEM_TOKENS)


def test_every_answer_is_the_same_token_for_token(
    steered: Server, plain: list[Answer], model: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    ours, theirs = [a.tokens for a in scene(steered, **KEPT)], [a.tokens for a in plain]
    if ours == theirs:
        return
    # A prompt computed in other pieces may round differently. Then plain vLLM must differ from itself likewise.
    bare = Server(model, tmp_path_factory.mktemp("b"), ["--kvp-off", "--no-enable-prefix-caching"]).start().up()
    try:
        uncached = [a.tokens for a in scene(bare)]
    finally:
        bare.stop()
    differing = [n for n, (one, other) in enumerate(zip(ours, theirs, strict=True)) if one != other]
    assert all(ours[n] == uncached[n] or theirs[n] == uncached[n] for n in differing), differing
    assert any(one != other for one, other in zip(theirs, uncached, strict=True)), "only with kvpolicy answers differ"


def test_with_every_block_protected_it_still_serves(steered: Server) -> None:
    whole = [prompt(200 + n, 8 * 32 + 1) for n in range(8)]
    for n, ids in enumerate(whole):
        steered.complete(ids, **directive(f"p{n}", len(ids), "turn", retention="pin"))
    assert steered.tell(do="ping")["engine"]["protected"] > 0
    long = steered.complete(prompt(300, 1000), 20)  # needs 32 of 47 blocks: protected ones leave
    assert len(long.tokens) == 20
    assert steered.complete(prompt(301, (USABLE - 16) * 32), 1).cached == 0


def test_a_long_prompt_is_admitted_into_a_protected_cache_as_into_a_full_one(steered: Server, stock: Server) -> None:
    """Law 4 from outside: a prompt that plain vLLM admits into a full cache is admitted into a protected one."""
    for n in range(6):
        steered.complete(prompt(400 + n, 257), **directive(f"q{n}", 256, "turn", retention="pin"))
    ids = prompt(450, 1000)
    assert steered.complete(ids, 4).tokens == stock.complete(ids, 4).tokens
