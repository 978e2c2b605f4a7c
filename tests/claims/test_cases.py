"""Cases of shared claims, pauses, pins, saturation, rewritten history, sub-agents and cancelled requests."""

from __future__ import annotations

import pytest

from kvpolicy.directive import PIN, Retention, Ttl
from kvpolicy.request import Owner
from kvpolicy.steering.calls import Wish
from tests.laws.world import SILENT, World, chain, spans

R1, R2, R3, R4 = (Owner(session=f"R{i}") for i in (1, 2, 3, 4))
PINNED = Retention(PIN)


def _block_of(owner: Owner) -> World:
    world = World(SILENT)
    world.ask(owner, "b")
    return world


class TestTwoOwnersOneBlock:
    """C05: claims are never merged into one number; expiry is per claim."""

    def test_each_claim_counts_while_it_lives(self) -> None:
        world = _block_of(R1)
        world.steering.claim(R1, ["b"], 0.0, Wish(80, Ttl(60.0, fixed=True)))
        world.at(10).steering.claim(R2, ["b"], 10.0, Wish(30, Ttl(600.0, fixed=True)))
        assert world.at(30).ranks("b") == [80]
        assert len(world.steering.show(["b"], 0)["claims"]) == 2
        assert world.at(60).ranks("b") == [30]
        assert world.at(609).ranks("b") == [30]
        assert world.at(610).ranks("b") == [30]  # a rank below the default has no lifetime to end

    def test_release_takes_one_owners_claim_alone(self) -> None:
        world = _block_of(R1)
        world.steering.claim(R1, ["b"], 0.0, Wish(80, Ttl(60.0, fixed=True)))
        world.at(10).steering.claim(R2, ["b"], 10.0, Wish(30, Ttl(600.0, fixed=True)))
        world.at(20).steering.release(R1, 20.0)
        assert world.ranks("b") == [30]

    def test_a_claim_without_a_level_is_the_default_and_nobody_sinks_it(self) -> None:
        world = _block_of(R3)
        world.steering.claim(R3, ["b"], 0.0, Wish(None, Ttl(100.0)))
        world.at(5).steering.claim(R4, ["b"], 5.0, Wish(30, Ttl(50.0)))
        assert world.at(7).ranks("b") == [35]
        assert world.at(56).ranks("b") == [35]


def test_tool_pause_longer_than_the_lifetime() -> None:
    """C09: the pause's hold keeps the prefix while everything unclaimed leaves, and ends when the result is used."""
    pause = (
        "policy p\nturn { priority: 60 ttl: 300s }\non tool_call until tool_result {\n"
        "  turn { retention: hold clamp(p90(tool.duration) else 300s, 30s, 600s) }\n}\n"
    )
    words = [f"w{i}" for i in range(40)]
    s = Owner(session="s")

    def run(text: str) -> World:
        world = World(text, blocks=100, budget=0.5)
        for seconds in (320, 380, 400, 410, 900):  # learn the tool's times
            teacher = Owner(session=f"t{seconds}")
            world.ask(teacher, ["teach"], tool_calls=["run_tests"])
            world.at(world.now + seconds).event("tool_result", session=f"t{seconds}", tool="run_tests")
        world.ask(s, words, spans(("turn", 40)), tool_calls=["run_tests"])
        return world

    world = run(pause)
    start = world.now
    world.at(start + 399)
    assert world.protected(words) == 40
    world.at(start + 400).ask(Owner(session="flood"), [f"f{i}" for i in range(60)])
    outcome = world.ask(s, [*words, "result"], spans(("turn", 40), ("tool_result", 1)))
    assert outcome.cached == 40
    assert world.protected(words) == 0  # consumed: the resuming request has touched the blocks
    plain = run("policy p\nturn { priority: 60 ttl: 300s }\n")
    plain.at(plain.now + 400).ask(Owner(session="flood"), [f"f{i}" for i in range(60)])
    plain.ask(Owner(session="flood2"), [f"g{i}" for i in range(40)])
    assert plain.ask(s, words, spans(("turn", 40))).cached == 0
    gone = run(pause)
    gone.at(gone.now + 50).event("agent_end", session="s")
    assert gone.protected(words) == 0


def test_more_pins_than_the_budget() -> None:
    """C11: clip, admit, answer."""
    world = World(SILENT, blocks=100, budget=0.2)
    a = [f"a{i}" for i in range(30)]
    c = [f"c{i}" for i in range(4)]
    world.ask(R1, a)
    world.ask(R2, c)
    steering = world.steering
    wish = Wish(priority=50, retention=PINNED)
    answer = steering.claim(Owner(session="A"), chain(*a), 0.0, wish)[0]
    assert (answer.status, answer.requested, answer.granted) == ("clipped", 30, 20)
    assert world.protected(a) == 20
    assert world.ranks(a) == [50] * 30
    answer = steering.claim(Owner(session="B"), chain(*a[:5]), 0.0, wish)[0]
    assert answer.status == "accepted"
    assert steering.pool.protected_blocks == 20
    answer = steering.claim(Owner(session="C"), chain(*c), 0.0, wish)[0]
    assert (answer.status, answer.requested, answer.granted) == ("clipped", 4, 0)
    name, outcome = world.request(Owner(session="D"), [f"d{i}" for i in range(80)])
    assert len(outcome.stored) == 80
    steering.release_all(0.0)
    assert steering.pool.protected_blocks == 0
    assert steering.running[name].lease.length == 80


def test_everything_top_priority_is_the_engines_own_order() -> None:
    """C13."""
    top, plain = World("policy top\nany { priority: 100 }\n", blocks=100), World(None, blocks=100)
    seen: list[list[object]] = [[], []]
    for world, trace in ((top, seen[0]), (plain, seen[1])):
        for now, session in enumerate("1234512345"):
            world.at(now)
            outcome = world.ask(Owner(session=session), [f"{session}.{i}" for i in range(40)], spans(("turn", 40)))
            trace.append((outcome.cached, outcome.evicted))
        trace.append(len(world.ask(Owner(session="new"), [f"n{i}" for i in range(20)]).stored))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("human", [True, False])
def test_thinking_dropped_on_the_next_human_turn(human: bool) -> None:
    """C25: the drop takes the answer behind the thinking along; inside the tool loop nothing is dropped."""
    world = World("policy p\non turn_end until turn_start { scratchpad { retention: drop } }\n")
    s = Owner(session="s")
    prompt, thought, answer = ([f"{kind}{i}" for i in range(n)] for kind, n in (("p", 20), ("t", 30), ("a", 10)))
    words = [*prompt, *thought, *answer]
    parts = spans(("turn", 20), ("scratchpad", 30), ("turn", 10))
    name, _ = world.request(s, words, parts)
    assert world.ranks(words) == [35] * 60
    world.at(1)
    if human:
        world.finish(name, finished=True)
        assert world.ranks(words) == [35] * 20 + [-1] * 40
        assert world.steering.pool.eviction_order(40) == list(reversed(chain(*words)))[:40]
        world.at(2)
        assert world.ask(s, [*prompt, *answer, "u"], spans(("turn", 31))).cached == 20
    else:
        world.finish(name, tool_calls=["grep"])
        assert world.ranks(words) == [35] * 60
        world.at(2)
        assert world.ask(s, [*words, "r"], (*parts, *spans(("turn", 60), ("tool_result", 1))[1:])).cached == 60


def test_eight_sub_agents_with_one_type_prefix() -> None:
    """C32: each claims the shared prefix for itself, with its own lifetime; its own blocks go when it ends."""
    world = World(
        "policy p\nsystem[agent = sub] { priority: 60 ttl: 300s for: agent }\n"
        "turn[agent = sub] { priority: 60 ttl: 300s }\n"
        "turn[agent = main] { priority: 70 ttl: 1h }\n"
    )
    main = Owner(session="m", agent="main")
    parent = [f"m{i}" for i in range(100)]
    type_prefix = [f"k{i}" for i in range(30)]
    world.ask(main, parent, spans(("turn", 100)))
    subs = [Owner(session=f"c{i}", agent="sub", parent="m") for i in range(8)]
    for i, sub in enumerate(subs):
        world.ask(sub, [*type_prefix, *(f"o{i}.{j}" for j in range(5))], spans(("system", 30), ("turn", 5)))
    world.at(50)
    assert world.steering.show(chain(*type_prefix), 0)["owners"] == 8
    assert world.ranks([*type_prefix, *(f"o3.{j}" for j in range(5))]) == [60] * 35
    world.at(90).ask(main, parent, spans(("turn", 100)))
    world.at(95).ask(subs[0], type_prefix, spans(("system", 30)))
    world.at(100)
    for i in range(8):
        world.event("agent_end", session=f"c{i}", agent="sub")
    assert world.at(101).ranks([*type_prefix, *(f"o3.{j}" for j in range(5))])[30:] == [35] * 5
    assert world.at(394).ranks(type_prefix) == [60] * 30
    assert world.at(395).ranks(type_prefix) == [35] * 30
    assert world.at(3689).ranks(parent) == [70] * 100
    assert world.at(3690).ranks(parent) == [35] * 100


class TestCancelAndRetry:
    """C33."""

    def test_a_retry_rides_on_the_request_that_runs(self) -> None:
        world = World(SILENT)
        words = [f"w{i}" for i in range(10)]
        first, _ = world.request(R1, words, key="k1")
        second, outcome = world.at(31).request(R1, words, key="k1")
        assert outcome.joined
        assert world.at(32).steering.show(chain(*words), 9)["owners"] == 1
        world.at(60).finish(first, finished=True)
        assert not world.steering.finish(second, 60.0)
        assert [len(world.steering.show(chain(*words), i)["claims"]) for i in range(10)] == [1] * 10
        assert world.at(400).steering.stats()["requests_remembered"] == 0

    def test_cancelling_what_never_ran_does_nothing(self) -> None:
        world = World(SILENT)
        assert not world.steering.cancel("unknown", 0.1)
        assert world.steering.stats()["claims"] == 0

    def test_a_cancelled_prefill_claims_what_was_stored_for_thirty_seconds(self) -> None:
        world = World("policy p\nturn { priority: 60 }\n")
        words = [f"w{i}" for i in range(10)]
        steering = world.steering
        from kvpolicy.request import Request

        request = Request("r", R1, 40, 4, spans(("turn", 10)), key="k3")
        steering.request(request, chain(*words), 0.0, blocks=4)
        assert world.ranks(words) == [60] * 4 + [None] * 6
        world.at(5)
        assert steering.cancel("r", 5.0)
        assert world.at(6).ranks(words)[:4] == [60] * 4
        assert not steering.finish("r", 9.0)
        assert world.at(34.9).ranks(words)[:4] == [60] * 4
        assert world.at(35).ranks(words)[:4] == [35] * 4
        assert world.at(36).steering.stats()["claims"] == 0
        assert world.at(400).steering.stats()["requests_remembered"] == 0

    def test_what_earlier_requests_claimed_stays(self) -> None:
        world = World("policy p\nturn { priority: 60 }\n")
        world.ask(R1, "ab", spans(("turn", 2)), finished=True)
        name, _ = world.at(1).request(R1, "abcd", spans(("turn", 2), ("turn", 2)))
        world.at(2).steering.cancel(name, 2.0)
        assert world.at(40).ranks("abcd") == [60, 60, 35, 35]
