"""Which lark the tests run with: `make test` takes the newest, then the 1.2.2 that vLLM pins."""

from __future__ import annotations

import os

import lark


def test_lark_is_the_one_asked_for() -> None:
    expected = os.environ.get("KVPOLICY_EXPECT_LARK")
    if expected is not None:
        assert lark.__version__ == expected, f"PYTHONPATH should have put lark {expected} in front of {lark.__file__}"
    assert tuple(map(int, lark.__version__.split(".")[:3])) >= (1, 2, 2)
