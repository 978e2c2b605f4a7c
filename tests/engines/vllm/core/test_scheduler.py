"""Claims on the real scheduler: what stays, what goes, and that nothing waits for us."""

from __future__ import annotations

import pytest

from tests.engines.vllm.core.stepped import SIZE, Stepped, prompt, system

BEHIND = 8  # blocks of a prompt behind its system prompt


def shared(seed: int, head: int = 4) -> list[int]:
    return prompt(1, head, 0) + prompt(seed, BEHIND)


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_a_ranked_system_prompt_survives_a_flood_and_an_unranked_one_does_not(kind: str) -> None:
    for priority, cached in ((90, 4 * SIZE), (None, 0)):
        engine = Stepped(kind)
        wish = {} if priority is None else {"priority": priority}
        engine.ask(shared(2), system(1, 4, **wish))
        engine.flood(30)
        assert engine.ask(shared(3)) == cached


@pytest.mark.parametrize("carrier", ["kv_transfer_params", "vllm_xargs", "kv_hints"])
def test_every_carrier_reaches_the_queue(carrier: str) -> None:
    engine = Stepped()
    engine.ask(shared(2), system(1, 4, priority=90), carrier=carrier)
    assert engine.claims is not None
    engine.flood(30)
    assert engine.ask(shared(3)) == 4 * SIZE


def test_without_directives_nothing_of_ours_is_in_place() -> None:
    engine, stock = Stepped(), Stepped("stock")
    queue = engine.pool.free_block_queue
    for each in (engine, stock):
        each.ask(shared(2))
        each.flood(20)
    assert engine.pool.free_block_queue is queue
    assert type(queue) is type(stock.pool.free_block_queue)
    assert engine.order() == stock.order()


def test_all_blocks_protected_still_serves() -> None:
    engine, stock = Stepped(), Stepped("stock")
    for each in (engine, stock):
        steps = 0
        for seed in range(40):
            name = each.add(prompt(seed, 10), system(seed, 10, owner=f"s{seed}", retention="pin", priority=100))
            while name in each.scheduler.requests:
                each.step()
                steps += 1
        each.steps = steps
    # INVARIANT: protection delays no admission.
    assert engine.steps == stock.steps
    assert engine.free == stock.free == 63
    assert engine.keeper.counters["failures"] == 0
    assert engine.claims.trunk.protected_blocks <= 0.4 * 63


def test_a_higher_rank_leaves_after_a_lower_one_whatever_their_age() -> None:
    engine = Stepped()
    engine.ask(prompt(1, 4), system(1, 4, owner="a", priority=80))
    engine.ask(prompt(2, 4, 0), system(2, 4, owner="b", priority=20))  # nothing behind it that is kept
    engine.ask(prompt(3, 4), system(3, 4, owner="c"))
    order = engine.order()
    ranks = [engine.claims.trunk.rank_of(i) for i in order]
    claimed = [r for i, r in zip(order, ranks, strict=True) if engine.pool.blocks[i].block_hash is not None]
    assert claimed == [20] * 4 + [35] * 4 + [80] * 4


def test_reranking_without_a_request_changes_the_next_eviction() -> None:
    engine = Stepped()
    engine.ask(shared(2), system(1, 4, priority=90))
    assert engine.say(do="rank", owner="s1", claim="system", priority=10)["status"] == "accepted"
    engine.flood(30)
    assert engine.ask(shared(3)) == 0
    engine.ask(shared(4), system(1, 4, priority=10, owner="s2"))
    row = engine.say(do="rank", owner="s2", claim="system", priority=95)
    assert row == {"status": "accepted", "requested": 4, "granted": 4, "reason": None}
    engine.flood(30)
    assert engine.ask(shared(5)) == 4 * SIZE


def test_a_lifetime_lapses_while_nothing_comes() -> None:
    for after, cached in ((59.0, 4 * SIZE), (61.0, 0)):
        engine = Stepped()
        engine.ask(shared(2), system(1, 4, priority=90, ttl=60))
        engine.now += after
        engine.flood(30)
        assert engine.ask(shared(3)) == cached


def test_a_hold_survives_a_flood_and_ends() -> None:
    for after, cached in ((29.0, 4 * SIZE), (31.0, 0)):
        engine = Stepped()
        engine.ask(shared(2), system(1, 4, hold=30))
        engine.now += after
        engine.flood(30)
        assert engine.ask(shared(3)) == cached


def test_release_ends_claims_and_says_how_many() -> None:
    engine = Stepped()
    engine.ask(shared(2), system(1, 4, priority=90))
    assert engine.say(do="release", owner="s1")["granted"] == 2  # the system prompt and the turn behind it
    assert engine.say(do="release", owner="s1")["granted"] == 0
    engine.flood(30)
    assert engine.ask(shared(3)) == 0


def test_two_owners_of_one_prompt_and_the_strongest_counts() -> None:
    engine = Stepped()
    engine.ask(shared(2), system(1, 4, owner="a", priority=90))
    engine.ask(shared(3), system(1, 4, owner="b", priority=5))
    engine.say(do="release", owner="b")
    engine.flood(30)
    assert engine.ask(shared(4)) == 4 * SIZE
    engine.say(do="release", owner="a")
    engine.flood(30)
    assert engine.ask(shared(5)) == 0


def test_nobody_sinks_what_others_use() -> None:
    engine = Stepped()
    engine.ask(shared(2))  # before the first directive: used by somebody who said nothing
    engine.ask(prompt(9, 2), system(9, 2, owner="x", priority=50))
    engine.ask(shared(3), system(1, 4, owner="a", retention="drop"))
    order = engine.order()
    head = [i for i in order if engine.claims.trunk.rank_of(i) < 35]
    assert len(head) == BEHIND  # what only the dropping owner has, and not the four blocks shared with the first
    engine.now += 3601
    engine.flood(1, 1, start=5000)
    assert len([i for i in engine.order() if engine.claims.trunk.rank_of(i) < 35]) >= 4


def test_budget_clips_the_weakest_tail() -> None:
    engine = Stepped()
    engine.ask(prompt(1, 20), system(1, 20, owner="a", retention="pin", priority=50))
    engine.ask(prompt(2, 20), system(2, 20, owner="b", retention="pin", priority=90))
    trunk = engine.claims.trunk
    assert trunk.protected_blocks == int(0.4 * 63)
    show = engine.say(do="show")["claims"]
    protected = {row["owner"]: row for row in show if row["kind"] == "system"}
    assert protected["b"]["protected"]


def test_a_reset_and_an_abort_leave_no_claim() -> None:
    engine = Stepped()
    engine.ask(shared(2), system(1, 4, priority=90, **{"for": "session"}))
    assert engine.scheduler.reset_prefix_cache()
    assert engine.keeper.status()["claims"] == 0
    assert engine.claims.trunk.runs == 0
    name = engine.add(shared(3), system(1, 4, priority=90, owner="s2"), output=50)
    engine.step()
    engine.abort(name)
    engine.now += 31
    engine.step()
    assert engine.keeper.status()["claims"] == 0
    assert engine.free == 63


def test_chunked_prefill_claims_what_is_stored_and_no_more() -> None:
    engine = Stepped(batched=64)
    name = engine.add(prompt(1, 12), system(1, 12, priority=90))
    seen = []
    while name in engine.scheduler.requests:
        engine.step()
        record = engine.claims.running.get(name)
        if record is not None and record.lease is not None:
            seen.append(record.lease.length)
    assert seen[0] == 4
    assert seen == sorted(seen)
    ranks = [engine.claims.trunk.rank_of(i) for i in engine.order()]
    assert ranks.count(90) == 12


def test_preemption_lets_go_and_comes_back() -> None:
    engine = Stepped(blocks=24)
    requests = []
    for n in range(3):
        name = engine.add(prompt(n, 6), system(n, 6, owner=f"s{n}", priority=90), output=90)
        requests.append(engine.scheduler.requests[name])
    engine.run()
    assert sum(request.num_preemptions for request in requests) > 0
    assert engine.keeper.counters["failures"] == 0
    assert engine.free == 23
    assert engine.claims.running == {}


def test_blocks_of_the_answer_are_claimed_when_they_are_let_go() -> None:
    engine = Stepped()
    told = {
        "owner": "s1",
        "spans": [
            {"kind": "system", "start": 0, "end": 4 * SIZE},
            {"kind": "output", "start": 4 * SIZE + 1, "end": None, "priority": 80},
        ],
    }
    engine.ask(prompt(1, 4), told, output=3 * SIZE + 2)
    ranks = [engine.claims.trunk.rank_of(i) for i in engine.order()]
    assert ranks.count(80) == 7  # the four of the prompt and three that the answer filled


def test_a_block_id_that_is_used_again_has_no_rank_of_before() -> None:
    engine = Stepped(blocks=12)
    engine.ask(prompt(1, 6), system(1, 6, priority=90))
    engine.ask(prompt(2, 10))  # takes nearly all, the ranked ones last
    ranks = [engine.claims.trunk.rank_of(i) for i in range(1, 12)]
    assert ranks.count(90) == 0
    assert engine.claims.trunk.runs == 1
    assert engine.ask(prompt(1, 6)) == 0


def test_salted_prompts_are_other_prompts() -> None:
    engine = Stepped()
    engine.ask(shared(2), system(1, 4, priority=90), salt="tenant-a")
    engine.flood(30)
    assert engine.ask(shared(3), salt="tenant-b") == 0
    engine.flood(30, start=7000)
    assert engine.ask(shared(4), salt="tenant-a") == 4 * SIZE


@pytest.mark.parametrize(
    "told",
    [
        "no json {",
        [],
        {"spans": 3},
        {"owner": 5, "spans": []},
        {"spans": [{"kind": "system", "start": 0, "end": 99999, "priority": 90}]},
        {"spans": [{"kind": "nonsense", "start": 0, "end": 16, "priority": 90}]},
        {"spans": [{"kind": "system", "start": 0, "end": 16, "priority": 1000}]},
        {"spans": [{"kind": "system", "start": 0, "end": 16, "priority": 90, "ttl": "long"}]},
    ],
)
def test_what_cannot_be_read_is_served_and_counted(told: object) -> None:
    engine = Stepped()
    engine.ask(shared(2), told)  # type: ignore[arg-type]
    assert engine.keeper.counters["rejected"] == 1
    assert engine.keeper.counters["failures"] == 0
    assert engine.ask(shared(3)) == 4 * SIZE
