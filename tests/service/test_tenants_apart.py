"""Two tenants that send one prompt: nothing that the gateway remembers of the one shows to the other."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import httpx
import pytest

from kvpolicy.service.app import Gateway
from kvpolicy.service.isolation import digest_key, hashed
from tests.service.test_edge_failing_open import assembled, engine_like, stage
from tests.service.test_edge_passing import CHAT, PATH, until
from tests.service.upstream import upstream

UNPLACED, PLACED = "ignored;reason=no_channel", "unknown;reason=no_channel"  # nobody listens at this engine's channel
KEYS = {"one": "key-of-one", "two": "key-of-two"}
TENANTS = [{"name": name, "keys": [sha256(key.encode()).hexdigest()]} for name, key in KEYS.items()]
SAME = {"x-session-id": "s"}
PROMPT = [{"role": "system", "content": "the words of one"}, {"role": "user", "content": "and its question"}]


@pytest.fixture
def running() -> Iterator[tuple[str, Gateway]]:
    limits = {"decide_within_s": 5.0}  # this machine may be slow: that is not what is tested here
    with upstream(engine_like) as engine, assembled(engine.url, tenant=TENANTS, limits=limits) as made:
        yield made


def status(at: str, key: str, messages: list[dict[str, Any]], **headers: str) -> str:
    """What the client is told of its hints."""
    body, told = {**CHAT, "messages": messages}, {"x-api-key": KEYS[key], **headers}
    answer = httpx.post(at + PATH, json=body, headers=told, timeout=30)
    assert answer.status_code == 200
    return answer.headers["x-kvp-decision"].rpartition("status=")[2]


def test_the_places_of_one_tenants_prompt_are_not_known_for_another(running: tuple[str, Gateway]) -> None:
    at, made = running
    assert status(at, "one", PROMPT, **SAME) == UNPLACED
    assert until(lambda: status(at, "one", PROMPT, **SAME) == PLACED)
    assert status(at, "two", PROMPT, **SAME) == UNPLACED
    # and it is the tenant that makes the difference: its own next request finds them
    assert until(lambda: status(at, "two", PROMPT, **SAME) == PLACED)
    held = [rows[-1].seen.conversation.units for _, rows in stage(made, "decisions").holding.plans.all()]
    digests = [{unit.digest for unit in units} for units in held]
    assert len(digests) == 2
    assert not digests[0] & digests[1]


def test_a_chain_without_a_name_goes_on_for_each_of_them(running: tuple[str, Gateway]) -> None:
    """The digest that an answer leaves is made with the same key as the prompt that brings it back."""
    at, made = running
    further = [*PROMPT, {"role": "assistant", "content": "so"}, {"role": "user", "content": "and then"}]
    for key in KEYS:
        status(at, key, PROMPT)
        assert until(lambda: made.proxy.running == 0)
        status(at, key, further)
    assert len(stage(made, "decisions").sessions) == 2


def test_no_key_of_digests_is_ever_written() -> None:
    """Names in logs are hashed with the same secret: a session that is called as its tenant tells nobody the key."""
    secret = b"s" * 32
    assert digest_key(secret, "one") != digest_key(secret, "two")
    assert digest_key(secret, "one").hex()[:20] != hashed(secret, "one")
    assert len(digest_key(b"k" * 64, "n" * 256)) == 32
