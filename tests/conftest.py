"""What all tests share: how hypothesis runs.

No deadlines: nothing here is a timed test. The same examples in every run, so that a failure is one on every machine;
`make fuzz` draws others each time. KVPOLICY_FUZZ=20 multiplies the examples of every property test, also
of those that state their own number (`make fuzz`).
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

from tests.lengthening import lengthen

LONGER = int(os.environ.get("KVPOLICY_FUZZ", "1"))

settings.register_profile(
    "kvpolicy",
    deadline=None,
    derandomize=LONGER == 1,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("kvpolicy")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--update`: write golden outputs anew instead of comparing with them."""
    parser.addoption("--update", action="store_true", help="write golden outputs anew")


@pytest.fixture
def update(request: pytest.FixtureRequest) -> bool:
    """Whether golden outputs are to be written."""
    return bool(request.config.getoption("--update"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Lengthen the property tests where that is asked for."""
    if LONGER != 1:
        lengthen((getattr(item, "obj", None) for item in items), LONGER)
