"""A law's test that cannot fail holds nothing: each mechanism is broken on purpose, and its test has to notice."""

from __future__ import annotations

import pytest
from hypothesis import Phase, settings

from tests.laws.mutants import MUTANTS, Mutant
from tests.laws.mutants_of_shares import MORE_MUTANTS


@pytest.mark.parametrize("mutant", (*MUTANTS, *MORE_MUTANTS), ids=lambda m: m.name)
def test_the_law_notices(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    own = getattr(mutant.noticed_by, "_hypothesis_internal_use_settings", None)
    if own is not None:  # finding one example is enough here; making it small takes long
        quick = settings(own, phases=(Phase.explicit, Phase.generate), database=None)
        monkeypatch.setattr(mutant.noticed_by, "_hypothesis_internal_use_settings", quick)
    mutant.breaks(monkeypatch)
    with pytest.raises((mutant.shows, ExceptionGroup)) as noticed:
        mutant.noticed_by(*mutant.arguments)
    if isinstance(noticed.value, ExceptionGroup):  # hypothesis found several
        assert noticed.value.split(mutant.shows)[1] is None, noticed.value
