"""Owners that send one prompt at one moment: each has its own plan, though the engine's tokenizer is asked once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import orjson

from kvpolicy.service.app import Gateway
from tests.service.test_edge_failing_open import ANSWER, assembled, reply, stage
from tests.service.test_edge_passing import CHAT, PATH, until
from tests.service.upstream import Asked, Upstream, upstream

SESSIONS = ("a", "b", "c")


class Gate:
    """An engine whose tokenizer answers while it is open. Tokens are the text's letters."""

    def __init__(self) -> None:
        self.open = threading.Event()

    async def __call__(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        if not asked.line.startswith("POST /tokenize"):
            writer.write(reply(ANSWER))
            return
        while not self.open.is_set():
            await asyncio.sleep(0.01)
        text = "".join(message["content"] for message in orjson.loads(asked.body)["messages"])
        writer.write(reply(orjson.dumps({"count": len(text), "tokens": [ord(letter) for letter in text]})))


@contextmanager
def gated() -> Iterator[tuple[str, Gateway, Upstream, Gate]]:
    gate = Gate()
    limits = {"decide_within_s": 5.0}  # this machine may be slow: that is not what is tested here
    with upstream(gate) as engine, assembled(engine.url, limits=limits) as (at, made):
        yield at, made, engine, gate


def ask(at: str, session: str, system: str) -> str:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": "go on"}]
    answer = httpx.post(at + PATH, json={**CHAT, "messages": messages}, headers={"x-session-id": session}, timeout=30)
    assert answer.status_code == 200
    return answer.headers["x-kvp-decision"]


def at_once(at: str, made: Gateway, gate: Gate, system: str) -> None:
    """All sessions ask before the tokenizer has answered one of them."""
    gate.open.clear()
    asked = stage(made, "decisions").counts["places_unknown"]
    with ThreadPoolExecutor() as pool:
        told = list(pool.map(lambda session: ask(at, session, system), SESSIONS))
    assert all("status=ignored;reason=no_channel" in each for each in told)  # their plans follow to nobody
    assert stage(made, "decisions").counts["places_unknown"] == asked + len(SESSIONS)
    gate.open.set()


def test_each_owner_is_there_with_a_plan_of_its_own() -> None:
    with gated() as (at, made, engine, gate):
        at_once(at, made, gate, "be brief")

        def owners() -> list[dict[str, Any]]:
            return httpx.get(f"{at}/v1/owners", timeout=30).json()["owners"]

        assert until(lambda: len(owners()) == len(SESSIONS))
        assert sorted(row["session"] for row in owners()) == list(SESSIONS)
        for row in owners():
            told = httpx.get(f"{at}/v1/explain/{row['requests'][0]}", timeout=30).json()
            assert [span["start"] for span in told["spans"]] == [0, 8, 13]
        asked = [a for a in engine.asked if a.line.startswith("POST /tokenize")]
        assert len(asked) == 3  # the whole, and each of its two messages
        assert stage(made, "decisions").counts["followed"] == len(SESSIONS)


def test_each_owner_is_told_where_its_prompt_differs() -> None:
    with gated() as (at, made, _, gate):
        doctor = stage(made, "doctor")
        at_once(at, made, gate, "It is 10:01. Be brief, be kind, be done.")
        assert until(lambda: len(doctor._tokens) == len(SESSIONS))
        at_once(at, made, gate, "It is 10:02. Be brief, be kind, be done.")
        assert until(lambda: all(row["first_differing_token"] == 10 for row in doctor.of_tenant("default")))
        assert len(doctor.of_tenant("default")) == len(SESSIONS)
