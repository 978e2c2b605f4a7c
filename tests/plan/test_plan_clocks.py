"""Holds, lifetimes and bounds: from a verdict to the times of a directive."""

from __future__ import annotations

from dataclasses import fields
from math import inf

import pytest

from kvpolicy.directive import Directive, Retention, Ttl, Verdict
from kvpolicy.plan.clocks import Common, is_protected, next_end, start_clocks
from kvpolicy.request import Span

TURN = Span("turn", 0, 80)


def held(value: Retention, at: float | None = 100.0, bound: float | None = 3700.0, **more: object) -> Directive:
    verdicts = {"retention": Verdict("retention", value, "wait", at, bound)}
    verdicts |= {name: Verdict(name, v, "wait") for name, v in more.items()}
    return start_clocks(0, TURN, verdicts, 110.0)


@pytest.mark.parametrize(
    ("retention", "bound", "until"),
    [
        (Retention("hold", 30.0), 3700.0, 130.0),
        (Retention("hold", 30.0), 120.0, 120.0),
        (Retention("hold", until="tool_result"), 9999.0, 3700.0),
        (Retention("hold", until="tool_result", at_most=60.0), 3700.0, 160.0),
        (Retention("hold", until="tool_result", at_most=7200.0), 3700.0, 3700.0),
        (Retention("pin"), 3700.0, 3700.0),
    ],
)
def test_a_hold_runs_from_the_opening_and_ends_at_the_bound(retention: Retention, bound: float, until: float) -> None:
    directive = held(retention, bound=bound)
    assert (directive.protected_until, directive.hold_after_release) == (until, None)


@pytest.mark.parametrize(
    ("retention", "seconds"),
    [
        (Retention("hold", 30.0), 30.0),
        (Retention("hold", until="turn_start"), 3600.0),
        (Retention("hold", until="turn_start", at_most=90.0), 90.0),
        (Retention("hold", 0.0), None),
    ],
)
def test_a_hold_outside_any_interval_runs_from_the_release(retention: Retention, seconds: float | None) -> None:
    directive = held(retention, at=None, bound=None)
    assert (directive.protected_until, directive.hold_after_release) == (None, seconds)
    assert is_protected(directive, 1e9) == (seconds is not None)


def test_a_pin_outside_any_interval_never_ends_by_itself() -> None:
    assert held(Retention("pin"), at=None, bound=None).protected_until == inf


def test_planning_again_never_moves_a_hold() -> None:
    verdicts = {"retention": Verdict("retention", Retention("hold", 30.0), "wait", 100.0, 3700.0)}
    ends = {start_clocks(0, TURN, verdicts, now).protected_until for now in (100.0, 115.0, 500.0)}
    assert ends == {130.0}


def test_protection_is_over_at_its_end() -> None:
    directive = held(Retention("hold", 30.0))
    assert is_protected(directive, 129.9)
    assert not is_protected(directive, 130.0)
    assert not is_protected(held(Retention()), 0.0)


def test_a_demotion_has_no_bound() -> None:
    directive = held(Retention("drop"))
    assert (directive.protected_until, directive.hold_after_release) == (None, None)


def test_a_lifetime_runs_from_the_release_and_a_fixed_one_from_now() -> None:
    plain = held(Retention(), priority=80, ttl=Ttl(300.0))
    assert (plain.ttl, plain.ttl_fixed, plain.expires) == (300.0, False, None)
    fixed = held(Retention(), priority=80, ttl=Ttl(300.0, fixed=True))
    assert (fixed.ttl, fixed.ttl_fixed, fixed.expires) == (300.0, True, 410.0)


@pytest.mark.parametrize("priority", [0, 20, 35])
def test_a_lifetime_says_nothing_about_ranks_not_above_the_default(priority: int) -> None:
    """Else a low rank would rise when the lifetime ends."""
    directive = held(Retention(), priority=priority, ttl=Ttl(300.0, fixed=True))
    assert (directive.ttl, directive.ttl_fixed, directive.expires) == (None, False, None)


def test_how_a_drop_was_reached_is_kept() -> None:
    through_any = Verdict("retention", Retention("drop"), "r", by_kind=False)
    assert not start_clocks(0, TURN, {"retention": through_any}, 0.0).drop_by_kind
    assert held(Retention("drop")).drop_by_kind


def test_the_next_end_is_the_soonest_still_to_come() -> None:
    directive = held(Retention("hold", 30.0), priority=80, ttl=Ttl(5.0, fixed=True))
    assert next_end(directive, 110.0, None) == 115.0
    assert next_end(directive, 115.0, None) == 130.0
    assert next_end(directive, 130.0, None) == inf


def test_what_alike_spans_have_in_common_is_a_directive_but_for_its_place() -> None:
    names = [field.name for field in fields(Directive)]
    assert tuple(names[names.index("end") + 1 :]) == Common._fields
