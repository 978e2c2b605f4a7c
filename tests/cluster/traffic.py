"""The demo cluster's traffic: groups of users with a long system prompt in common, asking at random moments.

Open loop: requests come when they come, however long the answers take. Each arm gets the same requests at the same
times. Sent to one address, or to an engine that `choose` names (as a plain load balancer would).
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

from kvpolicy.simulated.app import TIMES

_LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class Scenario:
    """Tokens are those of the scaled cluster. rate: requests a second; seconds: of arrivals that are measured."""

    groups: int
    users: int
    system_tokens: int
    question_tokens: int
    output_tokens: int
    rate: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Ask:
    """at: seconds after the start."""

    at: float
    group: int
    user: str
    question: str


@dataclass(frozen=True, slots=True)
class Got:
    """What one request got. first_s: to its first token, waiting and the way through a gateway included; at_engine_s:
    the same from its arrival at the engine; queued_s: of that, until its turn."""

    first_s: float
    at_engine_s: float
    queued_s: float
    prompt: int
    cached: int
    output: int
    done_at: float


def words(dice: random.Random, count: int) -> str:
    """So many tokens of the simulated tokenizer."""
    return "".join(" " + "".join(dice.choice(_LETTERS) for _ in range(5)) for _ in range(count))


def prompts(scenario: Scenario, seed: int) -> list[str]:
    """A system prompt a group."""
    return [words(random.Random(f"{seed}/{g}"), scenario.system_tokens - 2) for g in range(scenario.groups)]


def asks(scenario: Scenario, seed: int) -> list[Ask]:
    """The requests of one run, in time order: Poisson arrivals of users chosen at random."""
    dice, at, found = random.Random(seed), 0.0, []
    while (at := at + dice.expovariate(scenario.rate)) < scenario.seconds:
        group = dice.randrange(scenario.groups)
        user = f"g{group}u{dice.randrange(scenario.users)}"
        found.append(Ask(at, group, user, words(dice, scenario.question_tokens - 3)))
    return found


async def drive(
    choose: Callable[[Ask], str], system: Sequence[str], listed: Sequence[Ask], scenario: Scenario
) -> tuple[list[Got], int]:
    """Warm up (every system prompt once, with one token of output), then send all of them. Returns what they got, and
    how many failed."""
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=300)
    ) as session:
        turn = asyncio.Semaphore(16)

        async def warm(group: int) -> None:
            async with turn:
                ask = Ask(0.0, group, f"g{group}u0", " warm")
                await _one(session, choose(ask), system[group], ask, 1)

        await asyncio.gather(*(warm(group) for group in range(len(system))))
        began = time.monotonic()

        async def one(ask: Ask) -> Got | None:
            await asyncio.sleep(began + ask.at - time.monotonic())
            return await _one(session, choose(ask), system[ask.group], ask, scenario.output_tokens, began)

        got = await asyncio.gather(*(one(ask) for ask in listed))
    return [row for row in got if row is not None], sum(row is None for row in got)


async def _one(
    session: aiohttp.ClientSession, url: str, system: str, ask: Ask, most: int, began: float = 0.0
) -> Got | None:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": ask.question}]
    body: dict[str, Any] = {"model": "sim", "messages": messages, "max_tokens": most, "ignore_eos": True}
    sent = time.monotonic()
    try:
        async with session.post(f"{url}/v1/chat/completions", json=body, headers={"x-session-id": ask.user}) as answer:
            row = await answer.json()
            if answer.status != 200:
                return None
            times = dict(part.split("=") for part in answer.headers[TIMES].split(", "))
    except (aiohttp.ClientError, TimeoutError, KeyError):
        return None
    now, usage = time.monotonic(), row["usage"]
    decoding = float(times["total"]) - float(times["first"])
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    times_told = float(times["first"]), float(times["queued"])
    counts = usage["prompt_tokens"], cached, usage["completion_tokens"]
    return Got(now - sent - decoding, *times_told, *counts, now - began)
