"""Workloads on which no policy can win, or none should: what a report has to show beside the others.

no-pressure: coding agents so few that everything fits into a pool of their own size. uniform-chat: chats that are all
alike and return after exponential pauses, so that nothing tells one from another and what was used last is as likely to
return as anything. one-shot: prompts that nobody sends again, behind a system prompt that all share.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping

from kvpolicy.request import Owner
from kvpolicy.simulate.workloads.agents import swe
from kvpolicy.simulate.workloads.making import Session, Talk, arrivals
from kvpolicy.simulate.workloads.prompt import Blocks, Prompt

Settings = Mapping[str, float]


def no_pressure(settings: Settings, seed: int, blocks: Blocks) -> Iterable[Session]:
    """Continuum's programs, a few."""
    return swe(settings, seed, blocks)


def uniform_chat(settings: Settings, seed: int, blocks: Blocks) -> Iterable[Session]:
    """Sessions of the same length; each call adds as much, and the next one comes after an exponential pause."""
    starts = arrivals(random.Random(f"{seed}/starts"), int(settings["sessions"]), settings["per_s"])
    for number, start in enumerate(starts):
        yield _chat(f"chat{number}", random.Random(f"{seed}/chat/{number}"), start, settings, blocks)


def _chat(name: str, draw: random.Random, start: float, settings: Settings, blocks: Blocks) -> Session:
    talk = Talk(Owner(session=name), start)
    prompt = Prompt(blocks).add("turn", 512)
    for turn in range(int(settings["turns"])):
        if turn:
            talk.wait(draw.expovariate(1 / settings["pause_s"]))
            prompt.add("turn", 512)
        yield talk.call(prompt, 128)
        prompt.add("turn", 128)


def one_shot(settings: Settings, seed: int, blocks: Blocks) -> Iterable[Session]:
    """Requests of sessions that have one call each."""
    starts = arrivals(random.Random(f"{seed}/starts"), int(settings["sessions"]), settings["per_s"])
    for number, start in enumerate(starts):
        yield _once(f"once{number}", random.Random(f"{seed}/once/{number}"), start, blocks)


def _once(name: str, draw: random.Random, start: float, blocks: Blocks) -> Session:
    talk = Talk(Owner(session=name), start)
    prompt = Prompt(blocks).add("system", 256, "head").add("turn", draw.randrange(500, 4_000))
    yield talk.call(prompt, draw.randrange(50, 400))
