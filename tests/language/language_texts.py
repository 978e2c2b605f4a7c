"""Texts and their diagnostics, as all tests of the language ask for them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kvpolicy.faults import Diagnostic
from kvpolicy.language.check import examine, faulty
from kvpolicy.language.load import LoadResult, load, load_text
from kvpolicy.policy.analysis import analyse

CORPUS = Path(__file__).parent.parent / "corpus"
PAGES = Path(__file__).parent.parent.parent / "docs" / "codes"


def all_faults(loaded: LoadResult) -> tuple[Diagnostic, ...]:
    """What `kvp check` would say."""
    found = examine(loaded)
    if faulty(found) or loaded.files is None:
        return found
    return (*found, *analyse(loaded.files))


def faults_of(text: str, name: str = "a.kvp", folder: Path | None = None) -> tuple[Diagnostic, ...]:
    """The diagnostics of one text."""
    return all_faults(load_text(text, name, folder))


def faults_of_files(files: Sequence[str | Path]) -> tuple[Diagnostic, ...]:
    """The diagnostics of a set of files."""
    return all_faults(load(files))


def names_of(text: str) -> list[str]:
    """The names of a text's diagnostics, in order of place."""
    return [fault.name for fault in faults_of(text)]
