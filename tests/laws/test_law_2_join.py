"""Law 2. Before the budget, the order in which claims arrive cannot matter."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kvpolicy.directive import HOLD, Retention, Ttl
from kvpolicy.request import Owner
from kvpolicy.steering.calls import Wish
from tests.laws.world import SILENT, World, chain

WORDS = "abcdefgh"
wishes = st.builds(
    Wish,
    priority=st.one_of(st.none(), st.integers(0, 100)),
    ttl=st.one_of(st.none(), st.builds(Ttl, st.sampled_from([1.0, 5.0, 20.0]), st.booleans())),
    retention=st.one_of(st.builds(Retention), st.builds(Retention, st.just(HOLD), st.sampled_from([2.0, 7.0]))),
)
claims = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 8), wishes), max_size=6, unique_by=lambda c: (c[0], c[1]))


def _ranks(made: list[tuple[int, int, Wish]]) -> list[list[int | None]]:
    world = World(SILENT, budget=1.0)
    world.ask(Owner(session="first"), WORDS)
    world.steering.release(Owner(session="first"), 0.0)
    for owner, length, wish in made:
        world.steering.claim(Owner(session=f"s{owner}"), chain(*WORDS[:length]), 0.0, wish)
    return [world.at(now).strengths(WORDS) for now in (0, 1, 2, 3, 5, 6, 7, 19, 20, 100_000)]


@given(claims, st.randoms(use_true_random=False))
@settings(max_examples=100)
def test_order_of_arrival_does_not_matter(made: list[tuple[int, int, Wish]], random: object) -> None:
    other = list(made)
    random.shuffle(other)  # type: ignore[attr-defined]
    assert _ranks(made) == _ranks(other)


def test_a_short_high_and_a_long_low_claim_behave_as_both() -> None:
    high, low = (0, 2, Wish(priority=90)), (1, 6, Wish(priority=20))
    assert _ranks([high, low])[0] == [90, 90, 20, 20, 20, 20, 20, 20]
    assert _ranks([low, high])[0] == [90, 90, 20, 20, 20, 20, 20, 20]
