"""Policies that the tests of the language server read: the packaged ones and the corpus."""

from __future__ import annotations

from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@cache
def sound() -> tuple[Path, ...]:
    """Files without faults of syntax."""
    return tuple(sorted((*(ROOT / "policies").glob("*.kvp"), *(ROOT / "tests" / "corpus" / "good").rglob("*.kvp"))))


@cache
def bad() -> tuple[Path, ...]:
    """Files with one planted fault each."""
    return tuple(sorted((ROOT / "tests" / "corpus" / "bad").glob("KVP*.kvp")))


def text_of(path: Path) -> str:
    """What a file says, as the loader reads it."""
    return path.read_text(encoding="utf-8-sig").replace("\r\n", "\n")
