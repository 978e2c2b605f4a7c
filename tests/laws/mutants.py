"""Mechanisms broken on purpose, each with the test of a law that has to fail then.

To add one: patch the mechanism, name the test. `test_mutants` runs them all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from random import Random
from typing import Any

import pytest

from kvpolicy.claims import dead, lapsing
from kvpolicy.claims.budget import Budget
from kvpolicy.claims.claim import Claim
from kvpolicy.claims.ledger import Ledger
from kvpolicy.claims.line import Line
from kvpolicy.pool import Pool
from kvpolicy.steering import Steering, replanning, requests
from tests.claims import test_chains_and_what_is_dead as chains
from tests.laws import (
    test_law_1_prefix,
    test_law_2_join,
    test_law_3_nobody_sinks_another,
    test_law_4_never_wait,
    test_law_5_no_policy_no_change,
    test_law_6_all_equal_is_lru,
    test_law_7_lapsing_never_raises,
    test_law_8_budget,
    test_law_9_same_state_same_plan,
    test_law_10_fail_open,
    test_law_11_every_hint_gets_an_answer,
)

Patch = pytest.MonkeyPatch


@dataclass(frozen=True)
class Mutant:
    """What is broken, how, and the test that notices. shows: by what; a break that no longer fits what it breaks
    raises something else."""

    name: str
    breaks: Callable[[Patch], None]
    noticed_by: Callable[..., None]
    arguments: tuple[Any, ...] = ()
    shows: type[Exception] = AssertionError


def _only_the_longest_claim(patch: Patch) -> None:
    front = Line._front
    patch.setattr(Line, "_front", lambda self, *a: front(self, *a)[:1])


def _spans_claim_their_own_blocks_only(patch: Patch) -> None:
    """Earlier claims win: the front keeps the shortest ones."""
    front = Line._front
    patch.setattr(Line, "_front", lambda self, *a: front(self, *a)[-1:])


def _nobody_steps_forward(patch: Patch) -> None:
    settle = Line.settle

    def once(self: Line, ranks: Any, now: float, at: Any = None, present: Any = None) -> float:
        due = settle(self, ranks, now, at, present)
        if at is not None:  # forget the claims behind the front
            self.claims = [claim for claim in self.claims if any(claim is piece[2] for piece in self.pieces)]
        return due

    patch.setattr(Line, "settle", once)


def _last_writer_wins(patch: Patch) -> None:
    claim = Ledger.claim

    def alone(self: Ledger, owner: Any, hashes: Any, wish: Any, now: float) -> Any:
        for holder in list(self.holders.values()):
            self.release(holder.owner, now)
        return claim(self, owner, hashes, wish, now)

    patch.setattr(Ledger, "claim", alone)


def _saying_nothing_claims_nothing(patch: Patch) -> None:
    strength = Claim.strength
    patch.setattr(Claim, "strength", lambda self, now: 0 if self.directive is None else strength(self, now))


def _drops_spread_to_shared_lifetimes(patch: Patch) -> None:
    apply = Claim.apply

    def by_kind(self: Claim, directive: Any, nameless: bool) -> None:
        apply(self, directive, nameless)
        self.by_kind = True

    patch.setattr(Claim, "apply", by_kind)


def _protected_blocks_are_not_free(patch: Patch) -> None:
    take = Pool._take

    def spare(self: Pool, count: int, lease: Any) -> list[int]:
        return take(self, min(count, max(0, self.capacity - self.protected_blocks)), lease)

    patch.setattr(Pool, "_take", spare)


def _implicit_claims_raise(patch: Patch) -> None:
    strength = Claim.strength
    patch.setattr(
        Claim,
        "strength",
        lambda self, now: 36 + len(self.kind) if self.directive is None else strength(self, now),
    )


def _longer_claims_weigh_more(patch: Patch) -> None:
    strength = Claim.strength
    patch.setattr(Claim, "strength", lambda self, now: strength(self, now) + self.length)


def _ttl_runs_while_a_request_holds_the_block(patch: Patch) -> None:
    """The clock starts when the claim is made."""
    release = Pool.last_release

    def from_the_start(self: Pool, mark: Any, length: int | None = None) -> float | None:
        found = release(self, mark, length)
        return 0.0 if found is None else found

    patch.setattr(Pool, "last_release", from_the_start)


def _lapsed_claims_come_back(patch: Patch) -> None:
    lapse = lapsing.lapse

    def forgetful(line: Line, *a: Any) -> float:
        for claim in line.claims:
            claim.ended = False
        return lapse(line, *a)

    patch.setattr(lapsing, "lapse", forgetful)


def _fixed_is_armed_again(patch: Patch) -> None:
    place = Ledger.place

    def again(self: Ledger, *a: Any) -> Line:
        line = place(self, *a)
        for claim in line.claims:
            if claim.expires < inf and claim.directive is not None:
                claim.first = a[4]
                claim.apply(claim.directive, False)
                claim.ended = False
        self.settle(line, a[4], a[3])
        return line

    patch.setattr(Ledger, "place", again)


def _ttl_ends_a_hold(patch: Patch) -> None:
    ends_at = Claim.ends_at

    def without_hold(self: Claim, released: float) -> float:
        until, self.protected_until = self.protected_until, -inf
        try:
            end = ends_at(self, released)
        finally:
            self.protected_until = until
        if end < until < inf:
            self.protected_until = end
        return end

    patch.setattr(Claim, "ends_at", without_hold)


def _a_hold_starts_again_with_every_release(patch: Patch) -> None:
    release = Claim.release

    def again(self: Claim, now: float) -> None:
        self.hold_from = None
        release(self, now)

    patch.setattr(Claim, "release", again)


def _no_timers(patch: Patch) -> None:
    patch.setattr(Ledger, "advance", lambda self, now: None)


def _no_budget(patch: Patch) -> None:
    patch.setattr(Budget, "keep", lambda self, line, now: False)


def _the_newcomer_is_always_cut(patch: Patch) -> None:
    def cut(self: Budget, line: Line, now: float) -> bool:
        while self._ranks.protected_blocks > self.blocks:
            line.granted = min(line.granted, line.length) - 1
            self._settle(line, now)
        return False

    patch.setattr(Budget, "keep", cut)


def _time_of_day_matters(patch: Patch) -> None:
    made = replanning.plan
    mood = Random(9)  # irregular, so that two runs of one history meet it at different steps

    def moody(policy: Any, request: Any, state: Any, now: float, *drawn: Any) -> Any:
        plan = made(policy, request, state, now, *drawn)
        return made(None, request, state, now) if mood.random() < 0.5 else plan

    patch.setattr(replanning, "plan", moody)


def _faults_are_passed_on(patch: Patch) -> None:
    def place(self: Steering, running: Any, arrival: Any, now: float) -> bool:
        made = replanning.plan(self.policy, running.request, self.state, now)
        self.ledger.place(arrival, running.hashes, made.directives, running.lease, now)
        return False

    patch.setattr(Steering, "_place", place)


def _silence(patch: Patch) -> None:
    patch.setattr(requests, "answers", lambda line, now: [])


def _everything_dies(patch: Patch) -> None:
    patch.setattr(dead, "carries_result", lambda layout, reproduced: True)


def _nothing_dies(patch: Patch) -> None:
    patch.setattr(dead, "bury", lambda *a: [])


def _one_side_request_ends_a_chain(patch: Patch) -> None:
    patch.setattr(dead, "FOREIGN_REQUESTS", 1)


_CLOCKS = test_law_7_lapsing_never_raises
_A_WAY_TO_BREAK = ("kvpolicy.steering.replanning.plan", None)

MUTANTS = (
    Mutant(
        "only the longest claim",
        _only_the_longest_claim,
        test_law_1_prefix.test_along_a_prompt_the_rank_never_increases,
    ),
    Mutant(
        "later claims do not cover earlier blocks",
        _spans_claim_their_own_blocks_only,
        test_law_1_prefix.test_along_a_prompt_the_rank_never_increases,
    ),
    Mutant(
        "nobody steps forward",
        _nobody_steps_forward,
        test_law_1_prefix.test_when_the_later_claim_lapses_the_earlier_ones_step_forward_in_the_same_instant,
    ),
    Mutant("last writer wins", _last_writer_wins, test_law_2_join.test_order_of_arrival_does_not_matter),
    Mutant(
        "saying nothing claims nothing",
        _saying_nothing_claims_nothing,
        test_law_3_nobody_sinks_another.test_an_owner_who_said_nothing_holds_the_default,
    ),
    Mutant(
        "a drop through any takes shared claims",
        _drops_spread_to_shared_lifetimes,
        test_law_3_nobody_sinks_another.test_a_drop_through_any_leaves_shared_lifetimes_alone,
    ),
    Mutant(
        "protected blocks are not free",
        _protected_blocks_are_not_free,
        test_law_4_never_wait.test_a_pool_full_of_pins_admits_a_request,
    ),
    Mutant(
        "implicit claims raise",
        _implicit_claims_raise,
        test_law_5_no_policy_no_change.test_a_policy_that_says_nothing_changes_no_eviction,
    ),
    Mutant(
        "longer claims weigh more",
        _longer_claims_weigh_more,
        test_law_6_all_equal_is_lru.test_all_equal_is_the_engines_own_order,
        ("policy top\nany { priority: 100 }\n",),
    ),
    Mutant(
        "ttl runs while a request holds the block",
        _ttl_runs_while_a_request_holds_the_block,
        _CLOCKS.test_ttl_does_not_run_while_anothers_request_holds_the_block,
    ),
    Mutant(
        "lapsed claims come back", _lapsed_claims_come_back, _CLOCKS.test_what_has_lapsed_is_not_revived_by_anothers_use
    ),
    Mutant(
        "fixed is armed again",
        _fixed_is_armed_again,
        _CLOCKS.test_fixed_runs_from_the_first_claim_and_is_never_armed_again,
    ),
    Mutant("ttl ends a hold", _ttl_ends_a_hold, _CLOCKS.test_a_lifetime_does_not_end_a_hold),
    Mutant(
        "a hold starts again",
        _a_hold_starts_again_with_every_release,
        _CLOCKS.test_a_hold_starts_at_the_release_and_planning_again_never_moves_it,
    ),
    Mutant("no timers", _no_timers, _CLOCKS.test_ttl_runs_from_the_last_release),
    Mutant(
        "no budget",
        _no_budget,
        test_law_8_budget.test_what_is_protected_fits_and_is_what_taking_the_strongest_first_leaves,
    ),
    Mutant(
        "the newcomer is always cut",
        _the_newcomer_is_always_cut,
        test_law_8_budget.test_a_stronger_claim_displaces_a_weaker_one_and_its_answer_changes,
    ),
    Mutant("moods", _time_of_day_matters, test_law_9_same_state_same_plan.test_the_order_of_rules_does_not_matter),
    Mutant(
        "faults are passed on",
        _faults_are_passed_on,
        test_law_10_fail_open.test_a_policy_that_always_breaks_is_no_policy,
        shows=RuntimeError,
    ),
    Mutant("silence", _silence, test_law_11_every_hint_gets_an_answer.test_every_directive_of_a_request_is_answered),
    Mutant("everything dies", _everything_dies, chains.test_nothing_dies_while_a_tool_call_waits_for_its_result),
    Mutant("nothing dies", _nothing_dies, chains.test_what_the_newest_request_does_not_reproduce_loses_its_claim),
    Mutant(
        "one side request ends a chain",
        _one_side_request_ends_a_chain,
        chains.test_one_side_request_ends_nothing_two_in_a_row_do,
    ),
)
