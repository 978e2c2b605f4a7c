"""A preempted request holds nothing, keeps its claims, and goes on with what is left of its blocks."""

from __future__ import annotations

from kvpolicy.request import Owner
from tests.laws.world import SILENT, World, spans

S = Owner(session="s")


def test_what_is_left_is_used_again_and_the_rest_stored_anew() -> None:
    world = World(SILENT, blocks=8)
    name, _ = world.request(S, "abcdef", spans(("turn", 6)))
    assert world.at(1).steering.preempt(name, 1.0) == 6
    assert world.steering.preempt(name, 1.0) is None
    assert world.steering.progress(name, 1.0, hashes=["more"]) == []
    world.at(2).ask(Owner(session="other"), "vwxyz")
    assert world.strengths("abcdef") == [35, 35, 35, None, None, None]
    lease = world.at(3).steering.resume(name, 3.0)
    assert lease is not None and (lease.hits, len(lease.stored)) == (3, 3)
    assert world.steering.resume(name, 3.0) is None
    world.at(4).finish(name, finished=True)
    assert world.strengths("abcdef") == [35] * 6
    assert world.steering.counters["failures"] == 0


def test_its_claims_stand_and_their_clocks_run() -> None:
    world = World("policy p\nturn { priority: 80 ttl: 10s }\n", blocks=8)
    name, _ = world.request(S, "abcd", spans(("turn", 4)))
    world.at(1).steering.preempt(name, 1.0)
    assert world.at(10.9).ranks("abcd") == [80] * 4
    assert world.at(11).ranks("abcd") == [35] * 4
    world.at(12).steering.resume(name, 12.0)
    world.at(13).finish(name, finished=True)
    assert world.at(22.9).ranks("abcd") == [80] * 4
    assert world.at(23).ranks("abcd") == [35] * 4


def test_a_preempted_request_can_be_cancelled_or_ended() -> None:
    for end in (lambda w, n: w.steering.cancel(n, w.now), lambda w, n: w.finish(n)):
        world = World(SILENT, blocks=8)
        name, _ = world.request(S, "abcd")
        world.steering.preempt(name, 0.0)
        end(world, name)
        assert not world.steering.running
        world.at(100_000)
        assert not world.steering.ledger.holders
