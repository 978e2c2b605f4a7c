"""What a newer request shows to be dead, and what it does not."""

from __future__ import annotations

from kvpolicy.request import Owner
from tests.laws.world import World, chain, spans

S = Owner(session="s")
KEEP = "policy p\nturn { priority: 60 }\nsystem { priority: 80 }\n"
HEAD = ("system", 1)


def test_what_the_newest_request_does_not_reproduce_loses_its_claim() -> None:
    world = World(KEEP)
    world.ask(S, "Sabc", spans(HEAD, ("turn", 3)))
    world.at(1).ask(S, "Sxy", spans(HEAD, ("turn", 2)))
    assert world.ranks("Sabc") == [80, 35, 35, 35]
    assert world.ranks("Sxy") == [80, 60, 60]


def test_a_claim_whose_end_is_not_reproduced_ends_whole() -> None:
    world = World(KEEP)
    world.ask(S, "Sabc", spans(HEAD, ("turn", 3)))
    world.at(1).ask(S, "Sab", spans(HEAD, ("document", 2)))
    assert world.ranks("Sabc") == [80, 35, 35, 35]


def test_a_prompt_that_grows_kills_nothing() -> None:
    world = World(KEEP)
    world.ask(S, "Sab", spans(HEAD, ("turn", 2)))
    world.at(1).ask(S, "Sabcd", spans(HEAD, ("turn", 2), ("turn", 2)))
    assert world.ranks("Sabcd") == [80, 60, 60, 60, 60]


def test_one_side_request_ends_nothing_two_in_a_row_do() -> None:
    world = World(KEEP)
    world.ask(S, "Sab", spans(HEAD, ("turn", 2)))
    world.at(1).ask(S, "Txy", spans(HEAD, ("turn", 2)))
    assert world.ranks("Sab") == [80, 60, 60]
    world.at(2).ask(S, "Sab", spans(HEAD, ("turn", 2)))
    world.at(3).ask(S, "Txy", spans(HEAD, ("turn", 2)))
    assert world.ranks("Sab") == [80, 60, 60]  # alternating prompts stay
    world.at(4).ask(S, "Txyz", spans(HEAD, ("turn", 3)))
    assert world.ranks("Sab") == [35, 35, 35]  # the head's claim, `for agent`, dies with its chain
    assert world.ranks("Txy") == [80, 60, 60]


def test_another_model_is_another_chain() -> None:
    world = World(KEEP)
    world.ask(S, "Sab", spans(HEAD, ("turn", 2)))
    assert len(world.steering.ledger.holders) == 1
    holder = next(iter(world.steering.ledger.holders.values()))
    assert len(holder.chains) == 1
    world.ask(S, "Tab", spans(HEAD, ("turn", 2)))
    assert len(holder.chains) == 2


def test_nothing_dies_while_a_request_of_the_chain_runs() -> None:
    world = World(KEEP)
    first, _ = world.request(S, "Sab", spans(HEAD, ("turn", 2)))
    world.at(1).ask(S, "Sxy", spans(HEAD, ("turn", 2)))
    assert world.ranks("Sab") == [80, 60, 60]
    world.finish(first, finished=True)
    assert world.ranks("Sab") == [80, 60, 60]
    world.at(2).ask(S, "Sxyz", spans(HEAD, ("turn", 3)))
    assert world.ranks("Sab") == [80, 35, 35]


def test_nothing_dies_while_a_tool_call_waits_for_its_result() -> None:
    world = World(KEEP)
    world.ask(S, "Sab", spans(HEAD, ("turn", 2)), tool_calls=["grep"])
    world.at(1).ask(S, "Sxy", spans(HEAD, ("turn", 2)), finished=True)
    assert world.ranks("Sab") == [80, 60, 60]
    for now in (2, 3, 4):
        world.at(now).ask(S, "Txy", spans(HEAD, ("turn", 2)))
    assert world.ranks("Sab") == [80, 60, 60]


def test_a_call_that_was_answered_keeps_no_other_prompt() -> None:
    world = World(KEEP)
    world.ask(S, "Sab", spans(HEAD, ("turn", 2)), tool_calls=["grep"])
    world.at(1).ask(S, "Txr", spans(HEAD, ("turn", 1), ("tool_result", 1)), tool_calls=["grep"])
    assert world.ranks("Sab") == [80, 60, 60]
    world.at(2).ask(S, "Txrq", spans(HEAD, ("turn", 1), ("tool_result", 2)), tool_calls=["grep"])
    assert world.ranks("Sab") == [35, 35, 35]  # the open call is the other chain's


def test_a_call_that_other_prompts_leave_open_keeps_its_own() -> None:
    world = World(KEEP)
    world.ask(S, "Sab", spans(HEAD, ("turn", 2)), tool_calls=["task"])
    world.at(1).ask(S, "Tx", spans(HEAD, ("turn", 1)), tool_calls=["grep"])
    world.at(2).ask(S, "Txr", spans(HEAD, ("turn", 1), ("tool_result", 1)), tool_calls=["grep"])
    world.at(3).ask(S, "Txrq", spans(HEAD, ("turn", 1), ("tool_result", 2)), finished=True)
    assert world.ranks("Sab") == [80, 60, 60]  # a sub-agent without a name worked on the first prompt's call
    world.at(4).ask(S, "Sabd", spans(HEAD, ("turn", 2), ("tool_result", 1)), finished=True)
    assert world.ranks("Sabd")[:3] == [80, 60, 60]


def test_sub_agents_of_one_owner_that_wait_at_once_keep_their_prompts() -> None:
    world = World(KEEP)
    world.ask(S, "Ta", spans(HEAD, ("turn", 1)), tool_calls=["slow"])
    world.ask(S, "Ux", spans(HEAD, ("turn", 1)), tool_calls=["fast"])
    prompt = "Ux"
    for now in range(1, 5):
        prompt += str(now)
        world.at(now).ask(S, prompt, spans(HEAD, ("turn", 1), ("tool_result", now)), tool_calls=["fast"])
    assert world.ranks("Ta") == [80, 60]


def test_an_event_that_tells_of_a_call_tells_it_of_the_latest_prompt() -> None:
    world = World(KEEP)
    world.ask(S, "Sab", spans(HEAD, ("turn", 2)))
    world.at(1).event("tool_call", session="s", tool="grep")
    for now in (2, 3, 4):
        world.at(now).ask(S, "Txy", spans(HEAD, ("turn", 2)), finished=False)
    assert world.ranks("Sab") == [80, 60, 60]


def test_compaction_overrides_an_open_call() -> None:
    world = World(KEEP)
    world.ask(S, "Sab", spans(HEAD, ("turn", 2)), tool_calls=["grep"])
    world.at(1).event("compact", session="s")
    world.at(2).ask(S, "Sxy", spans(HEAD, ("turn", 2)))
    assert world.ranks("Sab") == [80, 35, 35]


def test_the_request_that_carries_the_result_decides() -> None:
    world = World(KEEP)
    world.ask(S, "Sab", spans(HEAD, ("turn", 2)), tool_calls=["grep"])
    world.at(1).ask(S, "Sxr", spans(HEAD, ("turn", 1), ("tool_result", 1)))
    assert world.ranks("Sab") == [80, 35, 35]


def test_branches_are_owners_of_their_own() -> None:
    world = World(KEEP)
    for branch in "12":
        world.ask(Owner(session="s", branch=branch), f"Sa{branch}", spans(HEAD, ("turn", 2)))
    assert world.ranks("Sa1") == [80, 60, 60]
    assert world.ranks("Sa2") == [80, 60, 60]


def test_users_known_by_prefix_alone_do_not_kill_each_other_and_go_after_an_hour() -> None:
    world = World("policy p\nturn[session = s] { priority: 5 }\n")
    nobody = Owner()
    world.ask(nobody, "Sab", spans(HEAD, ("turn", 2)))
    world.ask(nobody, "Sxy", spans(HEAD, ("turn", 2)))
    world.ask(S, "Sab", spans(("turn", 3)))
    world.ask(S, "Sxy", spans(("turn", 3)))
    assert world.ranks("Sab") == [35, 35, 35]
    assert world.at(3599).ranks("Sab") == [35, 35, 35]
    assert world.at(3600).ranks("Sxy") == [5, 5, 5]


def test_for_agent_outlives_the_session_and_ends_with_no_event() -> None:
    world = World(KEEP)
    world.ask(S, "Sab", spans(HEAD, ("turn", 2)))
    world.at(1).event("session_end", session="s")
    assert world.ranks("Sab") == [80, 35, 35]
    world.at(2).event("agent_end", session="s")
    assert world.ranks("Sab") == [80, 35, 35]


def test_workflow_end_ends_the_claims_of_the_run() -> None:
    world = World("policy p\nturn { priority: 60 for: run }\nsystem { priority: 80 for: workflow }\n")
    world.ask(Owner(run="r"), "Sab", spans(HEAD, ("turn", 2)))
    world.ask(Owner(run="other"), "Scd", spans(HEAD, ("turn", 2)))
    world.at(1).event("workflow_end", run="r")
    assert world.ranks("Sab") == [80, 35, 35]
    assert world.ranks("Scd") == [80, 60, 60]


def test_for_request_ends_when_the_answer_is_classified_or_after_two_seconds() -> None:
    world = World("policy p\nturn { priority: 60 for: request }\n")
    world.ask(S, "ab", spans(("turn", 2)))
    assert world.at(1.9).ranks("ab") == [60, 60]
    assert world.at(2).ranks("ab") == [35, 35]
    world.ask(S, "ab", spans(("turn", 2)), finished=True)
    assert world.ranks("ab") == [35, 35]


def test_protections_stand_until_the_answer_is_classified_or_two_seconds() -> None:
    world = World("policy p\nturn { retention: hold 1s }\n")
    world.ask(S, "ab", spans(("turn", 2)))
    assert world.at(1.9).protected("ab") == 2
    assert world.at(2).protected("ab") == 0


def test_tables_do_not_grow() -> None:
    world = World(KEEP)
    for number in range(50):
        owner = Owner(session=f"s{number}")
        world.ask(owner, f"S{number}", spans(HEAD, ("turn", 1)), finished=True)
        world.ask(Owner(), [f"n{number}"])
    world.at(90_000)
    stats = world.steering.stats()
    assert (stats["owners"], stats["claims"], stats["requests_remembered"], stats["timers"]) == (0, 0, 0, 0)
    assert not world.steering.ledger.holders
    assert world.steering.pool.block(chain("S", "1"), 0) is not None  # nothing was deleted for it
