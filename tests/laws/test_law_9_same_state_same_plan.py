"""Law 9. Order of rules, spans and dict keys, the hash seed and the wall clock do not matter."""

from __future__ import annotations

import os
import subprocess
import sys

from hypothesis import given, settings
from hypothesis import strategies as st

from kvpolicy.request import Owner
from tests.laws.world import World, histories, play, spans

RULES = (
    "system { priority: 90 }",
    "turn { priority: 40 ttl: 9s }",
    "on tool_call until tool_result { tool_result { retention: hold 5s } }",
    "document { retention: drop }",
)


@given(st.permutations(RULES), histories)
@settings(max_examples=50)
def test_the_order_of_rules_does_not_matter(rules: list[str], history: list[tuple[object, ...]]) -> None:
    seen: list[list[object]] = [[], []]
    for order, trace in ((RULES, seen[0]), (tuple(rules), seen[1])):
        world = World("policy p\n" + "\n".join(order) + "\n")
        play(world, history, lambda w, t=trace: t.append([w.strengths(""), *w.steering.pool.eviction_order()]))  # type: ignore[misc]
    assert seen[0] == seen[1]


@given(st.permutations(range(4)))
@settings(max_examples=20)
def test_the_order_of_spans_does_not_matter(order: list[int]) -> None:
    parts = spans(("system", 1), ("document", 1), ("turn", 2), ("tool_result", 1))
    world = World("policy p\n" + "\n".join(RULES) + "\n")
    world.ask(Owner(session="s"), "abcde", tuple(parts[i] for i in order), tool_calls=["grep"])
    straight = World("policy p\n" + "\n".join(RULES) + "\n")
    straight.ask(Owner(session="s"), "abcde", parts, tool_calls=["grep"])
    for now in (0, 4, 5, 9, 100):
        assert world.at(now).strengths("abcde") == straight.at(now).strengths("abcde")


SCRIPT = """
from tests.laws.test_law_9_same_state_same_plan import RULES
from tests.laws.world import World, play
w = World("policy p\\n" + "\\n".join(RULES) + "\\n", 12)
play(w, [("ask", n % 5, n % 2, [n % 12, (n * 7) % 12, n % 3], n % 3) for n in range(40)] + [("wait", 3.0)])
print(w.steering.pool.eviction_order(), w.steering.stats())
"""


def test_the_hash_seed_does_not_matter() -> None:
    outputs = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(["."])},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "77")
    }
    assert len(outputs) == 1
