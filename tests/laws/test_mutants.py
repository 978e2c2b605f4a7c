"""A law's test that cannot fail holds nothing: each mechanism is broken on purpose, and its test has to notice."""

from __future__ import annotations

import pytest

from tests.laws.mutants import MUTANTS, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_the_law_notices(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.breaks(monkeypatch)
    with pytest.raises((AssertionError, RuntimeError, BaseExceptionGroup)):
        mutant.noticed_by(*mutant.arguments)
