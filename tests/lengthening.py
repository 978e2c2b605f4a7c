"""Property tests, longer: `KVPOLICY_FUZZ=20` multiplies how many examples each draws (`make fuzz`).

Whatever states its number: a `@given` function's settings, the profile's where it has none of its own, or the class of
a state machine. The cases of a parametrized test share one function, which is lengthened once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hypothesis import settings


def lengthen(tests: Iterable[Any], times: int) -> None:
    """Let each draw `times` as many examples. tests: functions and methods as pytest collects them."""
    holders: dict[int, tuple[Any, str]] = {}
    for test in tests:
        function = getattr(test, "__func__", test)
        if hasattr(function, "_hypothesis_state_machine_class"):
            machine = getattr(test, "__self__", None)
            case = machine if isinstance(machine, type) else type(machine)
            holders[id(case)] = (case, "settings")
        elif getattr(function, "is_hypothesis_test", False):
            holders[id(function)] = (function, "_hypothesis_internal_use_settings")
    for holder, name in holders.values():
        own = getattr(holder, name, None) or settings.default
        setattr(holder, name, settings(own, max_examples=own.max_examples * times))
