"""A client that tries again asks for the same turn of the same run: nothing is counted or kept twice, nothing is sent
by ourselves, and two at once are one to the engine's claims.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import orjson
import pytest

from tests.service.test_edge_failing_open import ANSWER, TOKENS, assembled, reply, stage
from tests.service.test_edge_passing import CHAT, PATH, until
from tests.service.upstream import Asked, upstream


def failing(times: int) -> Any:
    left = [times]

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        if asked.line.startswith("POST /tokenize"):
            writer.write(reply(orjson.dumps({"count": len(TOKENS), "tokens": TOKENS})))
        elif left[0]:
            left[0] -= 1
            writer.write(b"HTTP/1.1 500 X\r\ncontent-length: 0\r\n\r\n")
        else:
            writer.write(reply(ANSWER))

    return answer


@pytest.mark.parametrize("session", [None, "s1"])
def test_the_sdks_own_retries_are_one_turn(session: str | None) -> None:
    headers = {} if session is None else {"x-session-id": session}
    with upstream(failing(2)) as engine, assembled(engine.url) as (at, made):
        client = openai.OpenAI(base_url=f"{at}/v1", api_key="x", max_retries=2, default_headers=headers)
        assert client.chat.completions.create(**CHAT).choices[0].message.content == "so"
        asked = [each for each in engine.asked if PATH in each.line]
        assert [each.named("x-stainless-retry-count") for each in asked] == [["0"], ["1"], ["2"]]
        assert len({orjson.loads(each.body)["cache_salt"] for each in asked}) == 1
        decisions = stage(made, "decisions")
        assert until(lambda: len(decisions.holding.plans) == 1)
        ((_, (held,)),) = decisions.holding.plans.all()
        assert held.request.attributes["turn"] == 1
        rows = httpx.get(f"{at}/v1/owners").json()["owners"]
        assert [row["session"] for row in rows] == [session or rows[0]["session"]]


@pytest.mark.parametrize("late", [False, True], ids=["places before the answer", "places behind it"])
def test_two_at_once_under_one_key_are_told_to_the_engine_as_one(late: bool) -> None:
    """Both go out, as without us; the engine learns that they are one by the key."""
    both, places, done = asyncio.Barrier(2), threading.Event(), threading.Event()

    async def at_once(asked: Asked, writer: asyncio.StreamWriter) -> None:
        if asked.line.startswith("POST /tokenize"):
            while not places.is_set():
                await asyncio.sleep(0.01)
            writer.write(reply(orjson.dumps({"count": len(TOKENS), "tokens": TOKENS})))
        else:
            await both.wait()
            while not done.is_set():
                await asyncio.sleep(0.01)
            writer.write(reply(ANSWER))

    with upstream(at_once) as engine, assembled(engine.url) as (at, made):
        headers = {"idempotency-key": "k1", "x-session-id": "s1"}
        holding = stage(made, "decisions").holding

        def told() -> list[tuple[object, object]]:
            """Of what is held: its key, and which turn of its run it is."""
            held = [one.request for _, each in holding.plans.all() for one in each]
            return [(request.key, request.attributes.get("turn")) for request in held]

        def ask(_: int) -> bytes:
            return httpx.post(at + PATH, json=CHAT, headers=headers, timeout=60).content

        with ThreadPoolExecutor(2) as pool:
            answers = pool.map(ask, range(2))
            if not late:
                places.set()
                assert until(lambda: told() == [("k1", 1)]), told()
            done.set()
            assert list(answers) == [ANSWER, ANSWER]
        assert until(lambda: made.proxy.running == 0)
        places.set()
        assert until(lambda: told() == [("k1", 1)]), told()
        assert len([each for each in engine.asked if PATH in each.line]) == 2
