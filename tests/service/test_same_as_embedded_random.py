"""Random histories through the embedded engine and through a gateway: where they part, the shortest is shown.

Two sessions, a sub-agent and a branch: side requests, edits of history, requests side by side, events and pauses.
An owner has one open call at a time, as the embedded engine takes any result for that of all. Two things part the sides
by design: the gateway looks at its clock once a second, and a plan that comes after its request has ended knows nothing
of a compaction that somebody told of meanwhile. Longer searches find these.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.service.same import Ask, Embedded
from tests.service.same_served import WAYS, Served
from tests.service.same_sides import REST_S, Both
from tests.service.same_talk import BASE, PAUSE, PLAIN, UNTIL, calls, results, said, system, user

POLICIES = (
    PAUSE,
    BASE,
    PLAIN,
    UNTIL.replace("EVENT", "tool_result"),
    UNTIL.replace("EVENT", "turn_start"),
    "policy b\nsystem { priority: 80 ttl: 5min }\nturn { priority: 20 }\ntool_result { priority: 60 ttl: 100s }\n",
    "policy c\nturn { retention: hold 80s priority: 40 }\nsystem { retention: pin }\n",
    "policy d\nsystem { priority: 70 ttl: 200s fixed }\n"
    "on tool_call until tool_result { turn, tool_result { retention: hold 100s priority: 55 } }\n"
    "on turn_end until turn_start { told: tool_result { retention: drop } rest: turn { priority: 10 } }\n",
    "policy f\non tool_call until tool_result { any { retention: pin } }\n"
    "on session_end { turn { retention: drop } }\n",
    "policy g\nturn { priority: 60 for: run }\ntool_result { priority: 70 for: branch }\noutput { priority: 75 }\n"
    "system { priority: 80 for: tenant }\n",
)
OWNERS: tuple[Mapping[str, Any], ...] = (
    {"session": "s"},
    {"session": "s", "agent": "sub"},
    {"session": "t", "run": "r"},
    {"session": "s", "branch": "b", "run": "r"},
)
EVENTS = ("tool_result", "session_end", "compact", "agent_end", "step_end", "branch_pruned", "workflow_end")
HOWS = ("on", "on", "on", "result", "result", "edited", "side", "anew")
steps = st.one_of(
    st.tuples(st.just("ask"), st.integers(0, 3), st.sampled_from(HOWS), st.booleans(), st.booleans()),
    st.tuples(st.just("ask"), st.just(0), st.sampled_from(HOWS), st.booleans(), st.booleans()),
    st.tuples(st.just("end"), st.integers(0, 3)),
    st.tuples(st.just("event"), st.sampled_from(EVENTS), st.integers(0, 3)),
    st.tuples(st.just("wait"), st.sampled_from([1, 10, 40, 70])),
)


class _Talks:
    """What each owner has said so far. open: requests that run, with their owners and whether they are asides."""

    def __init__(self, both: Both) -> None:
        self.both = both
        self.told: dict[int, list[Mapping[str, Any]]] = {}
        self.waits: set[int] = set()
        self.open: list[tuple[Ask, int, bool]] = []
        self.made = 0

    def ask(self, owner: int, how: str, tool: bool, beside: bool) -> None:
        """A request; beside: others go on while it runs."""
        self.made += 1
        told, name = self.told.get(owner), f"n{self.made}x"
        last = told[-1].get("tool_calls") if told else None
        if how == "side":
            messages = [system("title"), user(name)]
        elif told is None or how == "anew":
            messages = [system("AB"[self.made % 2]), user(name)]
        elif last and how == "result":
            messages = [*told, *results(*(call["id"] for call in last))]
            self.waits.discard(owner)
        elif how == "edited" or len(told) > 7:  # where more messages lie is not asked at once
            messages = [*told[:2], user(name)]
        else:
            messages = [*told, user(name)]
        calling = tool and owner not in self.waits
        if calling:
            self.waits.add(owner)
        reply = calls(name) if calling else said(name, 30)
        self.open.append((self.both.begin(OWNERS[owner], messages, reply), owner, how == "side"))
        if not beside:
            self.both.wait(0.1)
            self.end(len(self.open) - 1)

    def end(self, number: int) -> None:
        """One of those that run ends."""
        if number < len(self.open):
            ask, owner, side = self.open.pop(number)
            told = self.both.end(ask)
            if not side:
                self.told[owner] = told

    def play(self, history: list[tuple[Any, ...]]) -> None:
        """At rest, with nothing running, both sides are alike."""
        for what, *rest in [*history, *[("end", 0)] * len(history)]:
            if what == "ask":
                self.ask(*rest)
            elif what == "end":
                self.end(*rest)
            elif what == "event":
                fields = {name: OWNERS[rest[1]].get(name) for name in ("session", "run", "agent", "branch")}
                self.both.happens(rest[0], **fields)
            else:
                self.both.wait(rest[0])
            if self.open:
                self.both.wait(REST_S)
            else:
                self.both.check(f"{what} {rest}")


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.sampled_from(POLICIES), st.lists(steps, min_size=2, max_size=8))
def test_random_histories_are_kept_alike(way: str, policy: str, history: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        _Talks(Both(Embedded(policy), Served(policy, Path(folder), way))).play(history)
