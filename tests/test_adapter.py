"""An engine's scale, unit and direction: what becomes of a plan there, and what is said to be lost."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvpolicy.adapter import Capabilities, Lowered, duration, find_adapter, level
from kvpolicy.capabilities_json import read_capabilities
from kvpolicy.directive import Retention, Ttl, Verdict
from kvpolicy.faults import InputFault
from kvpolicy.lowering import lower
from kvpolicy.plan import plan
from kvpolicy.request import Span
from kvpolicy.units import parse_duration
from tests.plan.plan_stubs import Now, Says, Values, request

MILLISECONDS = {"name": "A", "ttl_unit": "ms", "zero_means": "permanent"}
WHOLE_SECONDS = {"name": "B", "ttl_unit": "whole_seconds", "zero_means": "permanent"}


def told(engine: dict[str, Any], **answers: Values) -> Lowered:
    """System and turn of two blocks each, planned at 100 s and lowered."""
    asked = request(Span("system", 0, 32), Span("turn", 32, 64), tokens=64)
    return lower(plan(Says(answers), asked, Now(100.0), 100.0), asked, read_capabilities(engine))


def codes(lowered: Lowered) -> list[str]:
    return [loss.code for loss in lowered.losses]


# --- levels (case C04) ----------------------------------------------------------------------------------


def test_range_ends_are_clamped_and_told_of() -> None:
    top = read_capabilities({"name": "E_99", "min": 0, "max": 99, "direction": "larger"})
    assert level(100, top) == 99
    assert level(99, top) <= level(100, top)
    assert (level(0, top), level(35, top), level(80, top)) == (0, 35, 80)
    floor = {"name": "E_100", "min": 1, "max": 100, "direction": "larger"}
    assert level(0, read_capabilities(floor)) == 1
    lowered = told(floor, turn={"priority": 0}, system={"priority": 90})
    assert codes(lowered) == ["CLIPPED"]
    assert lowered.losses[0].details == {"priority": 0, "level": 1}
    assert lowered.payload == {
        "directives": [{"start": 0, "end": 32, "level": 90}, {"start": 32, "end": 64, "level": 1}]
    }
    assert lowered.answer == {"status": "clipped", "requested": 4, "granted": 4, "reason": "CLIPPED"}


def test_the_direction_is_the_versions() -> None:
    older = read_capabilities({"name": "R", "version": "2026.02", "direction": "smaller"})
    newer = read_capabilities({"name": "R", "version": "2026.03", "direction": "larger"})
    assert level(35, older) > level(99, older)
    assert level(35, newer) < level(99, newer)
    assert level(99, older) > level(100, older)


def test_to_an_unknown_direction_nothing_is_sent() -> None:
    lowered = told({"name": "R", "version": "2027.99", "direction": "not_known"}, system={"priority": 90})
    assert lowered.payload == {"directives": []}
    assert lowered.state == "DIRECTION_UNKNOWN"
    assert codes(lowered) == ["DIRECTION_UNKNOWN"]
    assert lowered.answer == {"status": "ignored", "requested": 2, "granted": 0, "reason": "DIRECTION_UNKNOWN"}


def test_to_an_engine_that_refuses_the_field_nothing_is_sent() -> None:
    lowered = told({"name": "N", "supported": False}, system={"priority": 90})
    assert (lowered.payload, lowered.state) == ({"directives": []}, "UNSUPPORTED")
    assert lowered.answer["status"] == "ignored"


def test_the_default_is_the_engines_own_and_few_levels_are_shared_out() -> None:
    small = read_capabilities({"name": "S", "min": 0, "max": 9, "default": 4})
    assert [level(p, small) for p in (0, 20, 35, 60, 100)] == [0, 2, 4, 6, 9]
    reverse = read_capabilities({"name": "S", "min": 0, "max": 9, "default": 4, "direction": "smaller"})
    assert [level(p, reverse) for p in (0, 20, 35, 60, 100)] == [9, 6, 4, 2, 0]
    assert "CLIPPED" in codes(
        told({"name": "S", "min": 0, "max": 9, "default": 4}, system={"priority": 62}, turn={"priority": 60})
    )


def test_an_engine_without_a_level_below_its_default_says_so() -> None:
    lowered = told({"name": "V", "min": 0, "max": 100, "default": 0}, turn={"priority": 5})
    assert codes(lowered) == ["CANNOT_RANK_BELOW_DEFAULT"]
    assert lowered.payload == {"directives": []}
    assert codes(told({"name": "V", "default": 0}, turn={"retention": Retention("drop")})) == [
        "CANNOT_RANK_BELOW_DEFAULT"
    ]


@given(
    st.integers(-50, 50),
    st.integers(0, 200),
    st.data(),
    st.sampled_from(["larger", "smaller"]),
    st.integers(0, 100),
    st.integers(0, 100),
)
def test_levels_keep_the_order_and_the_range(
    low: int, room: int, data: st.DataObject, direction: str, one: int, two: int
) -> None:
    default = data.draw(st.integers(low, low + room))
    engine = Capabilities("e", None, low, low + room, default, direction)
    first, second = sorted((one, two))
    a, b = level(first, engine), level(second, engine)
    assert (a <= b) if direction == "larger" else (a >= b)
    assert low <= a <= low + room
    assert level(35, engine) == default


# --- lifetimes (case C08) -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "ms", "s"), [("5m", 300_000, 300), ("250ms", 250, 1), ("1h", 3_600_000, 3600), ("1200ms", 1_200, 2)]
)
def test_lifetimes_round_up_to_the_engines_unit(text: str, ms: int, s: int) -> None:
    rule = {"priority": 80, "ttl": Ttl(parse_duration(text))}
    for engine, sent in ((MILLISECONDS, ms), (WHOLE_SECONDS, s)):
        assert told(engine, turn=rule).payload["directives"] == [{"start": 0, "end": 64, "level": 80, "duration": sent}]


def test_zero_is_never_sent() -> None:
    for engine in (MILLISECONDS, WHOLE_SECONDS):
        lowered = told(engine, turn={"priority": 80, "ttl": Ttl(0.0)})
        assert lowered.payload == {"directives": []}  # it keeps nothing above the default
        assert duration(0.0, read_capabilities(engine)) is None


def test_no_lifetime_is_not_for_nothing() -> None:
    assert told(MILLISECONDS, turn={"priority": 80}).payload["directives"] == [{"start": 0, "end": 64, "level": 80}]


def test_a_low_level_has_no_lifetime_so_that_it_cannot_rise() -> None:
    lowered = told(MILLISECONDS, turn={"priority": 10, "ttl": Ttl(60.0)})
    assert lowered.payload["directives"] == [{"start": 32, "end": 64, "level": 10}]


def test_an_engine_without_lifetimes_says_so() -> None:
    lowered = told({"name": "S", "ttl_unit": None}, turn={"priority": 80, "ttl": Ttl(60.0)})
    assert lowered.payload["directives"] == [{"start": 0, "end": 64, "level": 80}]
    assert codes(lowered) == ["CLIPPED"]


# --- holds and steps ------------------------------------------------------------------------------------


def test_a_hold_stands_at_the_top_for_what_is_left_of_it() -> None:
    hold = {"retention": Verdict("retention", Retention("hold", 30.0), "w", 90.0, 3690.0)}
    lowered = told(MILLISECONDS, turn=hold)
    assert lowered.payload["directives"] == [{"start": 0, "end": 64, "level": 100, "duration": 20_000}]
    assert codes(lowered) == []


def test_a_high_short_and_a_low_long_claim_become_their_envelope() -> None:
    lowered = told(
        MILLISECONDS,
        system={"priority": 60},
        turn={"retention": Retention("hold", 30.0), "priority": 50, "ttl": Ttl(600.0)},
    )
    assert lowered.payload["directives"] == [
        {"start": 0, "end": 32, "level": 100},
        {"start": 32, "end": 64, "level": 100, "duration": 600_000},
    ]
    assert codes(lowered) == ["STEPS_MERGED"]


def test_what_stands_at_the_default_is_not_sent() -> None:
    assert told(MILLISECONDS).payload == {"directives": []}
    assert told(MILLISECONDS, system={"priority": 10}).answer == {
        "status": "accepted",
        "requested": 0,
        "granted": 0,
        "reason": None,
    }


def test_an_engine_nobody_has_an_adapter_for() -> None:
    with pytest.raises(InputFault, match="no adapter for engine 'nowhere' is installed"):
        find_adapter("nowhere")
