"""Law 8, quotas on a tier itself: what a group covers beyond its share ranks lowest, in the order of eviction."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kvpolicy.request import Owner
from kvpolicy.workflow.gauges import CostModel
from tests.laws.world import SIZE, World, chain, spans


def _ask(world: World, session: str, blocks: int, tenant: str = "t", kind: str = "turn", head: int = 0) -> list[str]:
    words = [f"h{i}" for i in range(head)] + [f"{tenant}{session}{i}" for i in range(blocks - head)]
    world.ask(Owner(tenant=tenant, session=session), words, spans((kind, blocks)), finished=True)
    return words


def test_the_excess_is_taken_in_the_order_of_eviction() -> None:
    world = World("policy p\nturn { priority: 60 }\nlimit any { gpu: at most 10% }\n", blocks=100)
    first = _ask(world, "a", 6)
    second = _ask(world.at(1), "b", 6)
    assert world.ranks(first) == [60] * 4 + [0] * 2
    assert world.ranks(second) == [60] * 6
    third = _ask(world.at(2), "c", 9)
    assert (world.ranks(first), world.ranks(second)) == ([0] * 6, [60] + [0] * 5)
    assert world.ranks(third) == [60] * 9
    assert world.steering.pool.eviction_order(2) == [chain(*first)[5], chain(*first)[4]]
    assert world.steering.counters["failures"] == 0


def test_a_weaker_span_goes_before_an_older_one() -> None:
    world = World(
        "policy p\nsystem { priority: 60 }\nturn { priority: 50 }\nlimit any { gpu: at most 10% }\n", blocks=100
    )
    strong = _ask(world, "a", 6, kind="system")
    weak = _ask(world.at(1), "b", 6)
    assert (world.ranks(strong), world.ranks(weak)) == ([60] * 6, [50] * 4 + [0] * 2)


def test_a_block_counts_once_in_a_group_and_its_tenant_alone_pays() -> None:
    world = World("policy p\nturn { priority: 60 }\nlimit any per tenant { gpu: at most 8% }\n", blocks=100)
    one = _ask(world, "a", 6, head=4)
    two = _ask(world.at(1), "b", 6, head=4)
    assert (world.ranks(one), world.ranks(two)) == ([60] * 6, [60] * 6)  # 8 distinct blocks
    three = _ask(world.at(2), "c", 5, tenant="u")
    assert world.ranks(three) == [60] * 5
    four = _ask(world.at(3), "d", 5, head=4)
    assert (world.ranks(four), world.ranks(one)) == ([60] * 5, [60] * 5 + [0])


def test_anothers_claim_holds_what_is_beyond_the_share() -> None:
    world = World("policy p\nturn { priority: 60 }\nlimit any[plan = free] { gpu: at most 0% }\n", blocks=100)
    world.ask(Owner(session="b"), "abc", spans(("turn", 3)), finished=True)
    quota = World("policy p\nturn { priority: 60 }\nlimit turn[session = s] { gpu: at most 0% }\n", blocks=100)
    quota.ask(Owner(session="s"), "abcd", spans(("turn", 4)), finished=True)
    assert quota.ranks("abcd") == [0] * 4
    quota.ask(Owner(session="other"), "ab", spans(("turn", 2)), finished=True)
    assert quota.ranks("abcd") == [60, 60, 0, 0]


def test_what_was_cut_stays_cut_until_its_owner_is_planned_again() -> None:
    world = World("policy p\nturn { priority: 60 }\nlimit any { gpu: at most 10% }\n", blocks=100)
    first = _ask(world, "a", 6)
    _ask(world.at(1), "b", 6)
    world.steering.release(Owner(tenant="t", session="b"), world.now)
    _ask(world, "c", 1)
    assert world.ranks(first) == [60] * 4 + [0] * 2
    _ask(world.at(2), "a", 6)
    assert world.ranks(first) == [60] * 6


def test_the_answer_says_so() -> None:
    world = World("policy p\nturn { priority: 60 }\nlimit any { gpu: at most 3% }\n", blocks=100)
    _, outcome = world.request(Owner(session="a"), "abcde", spans(("turn", 5)))
    assert [(h.status, h.requested, h.granted) for h in outcome.hints] == [("clipped", 5, 3)]


def test_quotas_in_tokens_and_in_bytes() -> None:
    for limit, cost in ((f"{4 * SIZE / 1000:g}k", None), ("4KiB", CostModel(bytes_per_token=1024 / SIZE))):
        world = World(
            f"policy p\nturn {{ priority: 60 }}\nlimit any per session {{ gpu: at most {limit} }}\n", blocks=100
        )
        if cost is not None:
            world.steering.measure(cost)
        assert world.ranks(_ask(world, "a", 6)) == [60] * 4 + [0] * 2


def test_a_quota_on_a_lower_tier_counts_what_sinks_there() -> None:
    world = World(
        "policy p\nturn { priority: 60 tier: gpu, cpu after 5s }\nlimit any { cpu: at most 20% }\n", 20, cpu_blocks=20
    )
    first = _ask(world, "a", 3)
    second = _ask(world, "b", 3)
    assert (world.ranks(first), world.ranks(second)) == ([60] * 3, [60] * 3)
    world.at(5)
    assert sorted(world.ranks(first) + world.ranks(second)) == [0, 0, 60, 60, 60, 60]  # type: ignore[type-var]


def test_a_limit_on_one_kind_leaves_the_others_their_protection() -> None:
    world = World(
        "policy p\nsystem, turn { retention: pin }\nlimit turn { hold: at most 2% of gpu }\n", blocks=100, budget=0.5
    )
    world.ask(Owner(session="s"), "abcdef", spans(("system", 4), ("turn", 2)), finished=True)
    assert world.protected("abcdef") == 4
    world.check()


requests = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 9), st.integers(0, 4), st.sampled_from(["turn", "system", "document"])),
    max_size=12,
)


@given(requests, st.integers(0, 20))
@settings(max_examples=100)
def test_what_a_group_covers_without_being_lowest_fits(made: list[tuple[int, int, int, str]], quota: int) -> None:
    world = World(
        "policy p\nturn { priority: 60 }\nsystem { retention: pin priority: 70 }\n"
        f"limit any {{ gpu: at most {quota}% }}\n",
        blocks=100,
    )
    for number, (session, blocks, head, kind) in enumerate(made):
        _ask(world.at(number), f"s{session}", max(blocks, head), kind=kind, head=head)
        above: set[str] = set()
        for prompt in world.prompts.values():
            words = [h.rsplit("/", 1)[-1] for h in prompt]
            above.update(h for h, s in zip(prompt, world.strengths(words), strict=True) if s is not None and s > 0)
        unclaimed = {h for h in above if not world.claims_on(h.split("/"), h.count("/"))}
        assert len(above - unclaimed) <= quota
        world.check()


def test_what_lies_below_the_first_tier_is_charged_when_it_comes_up() -> None:
    world = World("policy p\nsystem[session = a] { retention: pin }\n", 10, cpu_blocks=10)
    world.ask(Owner(session="a"), "Stuv", spans(("system", 4)), finished=True)
    world.steering.evict(4, world.now)
    assert world.steering.pool.protected_blocks == 0
    world.ask(Owner(session="a"), "Wxyz", spans(("system", 4)), finished=True)
    assert world.steering.pool.protected_blocks == 4
    world.request(Owner(session="other"), "Stuv", spans(("system", 4)))
    world.check()
    assert world.steering.pool.protected_blocks == 4


def test_a_cut_spares_what_is_not_charged() -> None:
    world = World(
        "policy p\nturn { retention: hold until step_start priority: 50 }\nsystem { retention: pin }\n"
        "on step_start until step_end { turn { priority: 60 } }\n",
        blocks=9,
        cpu_blocks=5,
        disk_blocks=6,
    )
    world.ask(Owner(session="a"), "Ss", spans(("system", 2)), finished=True)
    world.ask(Owner(session="a"), "Tt", spans(("system", 2)), finished=True)
    world.ask(Owner(session="a"), "Ssabcdef", spans(("system", 2), *[("turn", 1)] * 6), finished=True)
    world.check()  # one of the blocks of `Tt` has sunk to the CPU
    assert world.steering.pool.protected_blocks == 3
