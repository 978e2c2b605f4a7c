"""More mechanisms broken on purpose: shares of requests and tiers, holds until events, pressure, time, memory."""

from __future__ import annotations

from typing import Any

from kvpolicy.claims.budget import Budget
from kvpolicy.claims.claim import Claim
from kvpolicy.claims.ledger import Ledger
from kvpolicy.claims.line import Line
from kvpolicy.claims.quotas import Quotas
from kvpolicy.pool import Pool
from kvpolicy.pool.tally import Tally
from kvpolicy.steering import Steering, ladder, replanning
from kvpolicy.steering.outcome import Running
from kvpolicy.steering.pace import Pace
from kvpolicy.steering.pressure import Pressure
from kvpolicy.workflow.state import RunState
from tests.claims import test_nothing_only_grows, test_shares_of_a_line
from tests.laws import (
    test_holds_until,
    test_law_8_quotas_on_tiers,
    test_law_10_time_budget,
)
from tests.laws.mutants import Mutant, Patch
from tests.steering import test_ladder, test_preemption, test_pressure


def _tiers_have_no_quotas(patch: Patch) -> None:
    patch.setattr(Quotas, "keep", lambda self, now: None)


def _shared_blocks_count_twice(patch: Patch) -> None:
    add = Tally.add

    def anew(self: Tally, mark: Any, length: int) -> int:
        self._counted = {}
        return add(self, mark, length)

    patch.setattr(Tally, "add", anew)


def _cuts_are_forgotten(patch: Patch) -> None:
    keep = Quotas._keep

    def from_scratch(self: Quotas, key: Any, now: float) -> None:
        for line in self._members.get(key, {}):
            line.uncut()
            self._settle(line, now)
        keep(self, key, now)

    patch.setattr(Quotas, "_keep", from_scratch)
    patch.setattr(Quotas, "keep", lambda self, now: [self._keep(key, now) for key in list(self._members)])


def _a_limit_cuts_the_whole_line(patch: Patch) -> None:
    keep = Budget._keep_limit

    def all_of_it(self: Budget, *a: Any) -> Any:
        cut = keep(self, *a)
        for line in cut:
            line.granted = min(claim.granted for claim in line.claims)
            self._settle(line, a[-1])
        return cut

    patch.setattr(Budget, "_keep_limit", all_of_it)


def _what_comes_up_costs_nothing(patch: Patch) -> None:
    patch.setattr(Budget, "keep_whole", lambda self, now: None)


def _what_lies_below_is_charged(patch: Patch) -> None:
    patch.setattr(Budget, "keep_whole", lambda self, now: None)
    patch.setattr(Budget, "_charged", lambda self, line, length: length)


def _one_cancel_withdraws_nothing(patch: Patch) -> None:
    finish = Ledger.finish

    def all_settled(self: Ledger, line: Line, *a: Any) -> None:
        finish(self, line, *a)
        for claim in line.claims:
            claim.settled = True

    patch.setattr(Ledger, "finish", all_settled)


def _anybody_grows_the_line(patch: Patch) -> None:
    patch.setattr(Running, "leads", property(lambda self: self.line))


def _lines_stay_where_they_stood(patch: Patch) -> None:
    patch.setattr(Line, "loosen", lambda self, ranks, length, now: None)


def _no_event_ends_a_hold(patch: Patch) -> None:
    patch.setattr(Claim, "came", lambda self, event, now, ends: False)


def _planning_again_holds_again(patch: Patch) -> None:
    apply = Claim.apply

    def forgetful(self: Claim, *a: Any) -> None:
        self.over = None
        apply(self, *a)

    patch.setattr(Claim, "apply", forgetful)


def _nobody_looks_at_the_pressure(patch: Patch) -> None:
    patch.setattr(Pressure, "crossed", lambda self: False)


def _pressure_is_read_always(patch: Patch) -> None:
    patch.setattr(Pressure, "crossed", lambda self: True)


def _planning_takes_as_long_as_it_likes(patch: Patch) -> None:
    patch.setattr(Pace, "start", lambda self: None)


def _prefetch_comes_late(patch: Patch) -> None:
    wanted = replanning.Replanning._wanted_from

    def at_the_use(self: Any, line: Line, claim: Claim) -> float:
        found = wanted(self, line, claim)
        ahead = 0.0 if claim.directive is None else float(claim.directive.prefetch)
        return found + ahead

    patch.setattr(replanning.Replanning, "_wanted_from", at_the_use)


def _prefetch_always_to_the_gpu(patch: Patch) -> None:
    prefetch = Pool.prefetch
    patch.setattr(Pool, "prefetch", lambda self, mark, now, tier="gpu": prefetch(self, mark, now))


def _ladders_know_only_their_own_request(patch: Patch) -> None:
    add = ladder._Wishes.add

    def deaf(self: Any, *a: Any) -> None:
        add(self, *a)
        self.used = False

    patch.setattr(ladder._Wishes, "add", deaf)


def _a_preempted_request_keeps_its_blocks(patch: Patch) -> None:
    patch.setattr(Steering, "preempt", lambda self, request_id, now: self.running[request_id].lease.length)


def _nobody_is_reaped(patch: Patch) -> None:
    patch.setattr(RunState, "reap", lambda self, idle_for=0.0: ())


def _owners_without_claims_stay(patch: Patch) -> None:
    patch.setattr(Ledger, "_reap", lambda self, holder, head: None)


_QUOTAS = test_law_8_quotas_on_tiers
_SHARES = test_shares_of_a_line

MORE_MUTANTS = (
    Mutant("tiers have no quotas", _tiers_have_no_quotas, _QUOTAS.test_what_a_group_covers_without_being_lowest_fits),
    Mutant(
        "shared blocks count twice",
        _shared_blocks_count_twice,
        _QUOTAS.test_a_block_counts_once_in_a_group_and_its_tenant_alone_pays,
    ),
    Mutant(
        "cuts are forgotten", _cuts_are_forgotten, _QUOTAS.test_what_was_cut_stays_cut_until_its_owner_is_planned_again
    ),
    Mutant(
        "a limit cuts the whole line",
        _a_limit_cuts_the_whole_line,
        _QUOTAS.test_a_limit_on_one_kind_leaves_the_others_their_protection,
    ),
    Mutant(
        "what comes up costs nothing",
        _what_comes_up_costs_nothing,
        _QUOTAS.test_what_lies_below_the_first_tier_is_charged_when_it_comes_up,
    ),
    Mutant("what lies below is charged", _what_lies_below_is_charged, _QUOTAS.test_a_cut_spares_what_is_not_charged),
    Mutant(
        "a cancel withdraws nothing",
        _one_cancel_withdraws_nothing,
        _SHARES.test_cancelling_the_second_withdraws_its_share_only,
    ),
    Mutant(
        "anybody grows the line",
        _anybody_grows_the_line,
        _SHARES.test_a_request_whose_line_went_on_with_another_marks_nothing_when_it_grows,
    ),
    Mutant(
        "lines stay where they stood",
        _lines_stay_where_they_stood,
        _SHARES.test_a_line_that_lost_its_claims_leaves_the_prompt_it_stood_on,
    ),
    Mutant(
        "no event ends a hold",
        _no_event_ends_a_hold,
        test_holds_until.test_the_event_ends_a_hold_that_no_interval_bounds,
    ),
    Mutant(
        "planning again holds again",
        _planning_again_holds_again,
        test_holds_until.test_planning_again_does_not_revive_it,
    ),
    Mutant(
        "nobody looks at the pressure",
        _nobody_looks_at_the_pressure,
        test_pressure.test_the_first_block_beyond_a_step_is_noticed,
    ),
    Mutant(
        "pressure is read always",
        _pressure_is_read_always,
        test_pressure.test_between_two_steps_nothing_is_read_again,
    ),
    Mutant(
        "planning takes as long as it likes",
        _planning_takes_as_long_as_it_likes,
        test_law_10_time_budget.test_a_plan_that_takes_too_long_is_given_up_and_counted,
    ),
    Mutant("prefetch comes late", _prefetch_comes_late, test_ladder.test_prefetch_ahead_of_the_expected_next_use),
    Mutant(
        "prefetch always to the GPU",
        _prefetch_always_to_the_gpu,
        test_ladder.test_prefetch_brings_back_to_the_first_rung,
    ),
    Mutant(
        "ladders know only their own request",
        _ladders_know_only_their_own_request,
        test_ladder.test_what_another_owner_holds_is_idle_from_its_release_on,
    ),
    Mutant(
        "a preempted request keeps its blocks",
        _a_preempted_request_keeps_its_blocks,
        test_preemption.test_what_is_left_is_used_again_and_the_rest_stored_anew,
    ),
    Mutant("nobody is reaped", _nobody_is_reaped, test_nothing_only_grows.test_sessions_that_vanish_leave_nothing),
    Mutant(
        "owners without claims stay",
        _owners_without_claims_stay,
        test_nothing_only_grows.test_sessions_that_vanish_leave_nothing,
    ),
)
