"""Law 8. Protected memory never exceeds its quota; what does not fit is cut from the tail; no request fails for it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kvpolicy.directive import PIN, Retention
from kvpolicy.request import Owner
from kvpolicy.steering.calls import Wish
from tests.laws.world import SILENT, World, chain

PINNED = Retention(PIN)


def _prompt(length: int, fork: int, tail: int) -> list[str]:
    return [f"t{i}" if i < fork else f"u{tail}.{i}" for i in range(length)]


pins = st.lists(
    st.tuples(st.integers(1, 12), st.integers(0, 12), st.integers(0, 2), st.sampled_from([40, 60, 80])), max_size=7
)


def _greedy(made: list[tuple[int, int, int, int]], quota: int) -> int:
    """How many blocks taking claims strongest first, each as far as it fits, protects: the obvious way."""
    kept: set[str] = set()
    order = sorted(range(len(made)), key=lambda i: (-made[i][3], i))
    for i in order:
        length, fork, tail, _ = made[i]
        for block in chain(*_prompt(length, fork, tail)):
            if block not in kept and len(kept) >= quota:
                break
            kept.add(block)
    return len(kept)


@given(pins, st.integers(0, 30))
@settings(max_examples=150)
def test_what_is_protected_fits_and_is_what_taking_the_strongest_first_leaves(
    made: list[tuple[int, int, int, int]], quota: int
) -> None:
    world = World(SILENT, blocks=100, budget=quota / 100 + 1e-9)
    for length, fork, tail, _ in made:
        world.ask(Owner(session="filler"), _prompt(length, fork, tail))
    for number, (length, fork, tail, priority) in enumerate(made):
        hashes = chain(*_prompt(length, fork, tail))
        world.steering.claim(Owner(session=f"s{number}"), hashes, 0.0, Wish(priority=priority, retention=PINNED))
        assert world.steering.pool.protected_blocks <= quota
    if len({m[3] for m in made}) <= 1:  # nobody was displaced, so history does not matter
        assert world.steering.pool.protected_blocks == _greedy(made, quota)
    assert world.steering.counters["failures"] == 0


def test_a_stronger_claim_displaces_a_weaker_one_and_its_answer_changes() -> None:
    world = World(SILENT, blocks=100, budget=0.10)
    for owner in "ab":
        world.ask(Owner(session=owner), [f"{owner}{i}" for i in range(10)])
    a, b = (chain(*[f"{owner}{i}" for i in range(8)]) for owner in "ab")
    answers = world.steering.claim(Owner(session="a"), a, 0.0, Wish(priority=50, retention=PINNED))
    assert [(x.status, x.granted) for x in answers] == [("accepted", 8)]
    answers = world.steering.claim(Owner(session="b"), b, 0.0, Wish(priority=60, retention=PINNED))
    assert [(x.status, x.granted) for x in answers] == [("accepted", 8)]
    assert world.protected([f"a{i}" for i in range(10)]) == 2
    assert world.ranks([f"a{i}" for i in range(10)]) == [50] * 8 + [35] * 2
    world.steering.release(Owner(session="b"), 0.0)
    assert world.protected([f"a{i}" for i in range(10)]) == 2  # clipped stays clipped until planned again
    world.steering.claim(Owner(session="a"), a, 0.0, Wish(priority=50, retention=PINNED))
    assert world.protected([f"a{i}" for i in range(10)]) == 8


def test_a_limit_per_tenant_is_kept_besides() -> None:
    world = World("policy p\nturn { retention: pin }\nlimit any per tenant { hold: at most 5% of gpu }\n", blocks=100)
    for tenant in "xy":
        for session in "ab":
            words = [f"{tenant}{session}{i}" for i in range(4)]
            world.ask(Owner(tenant=tenant, session=session), words, finished=True)
    kept = [world.protected([f"{t}{s}{i}" for i in range(4)]) for t in "xy" for s in "ab"]
    assert kept == [4, 1, 4, 1]
