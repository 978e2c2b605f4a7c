"""What `--policy` may name: baselines, oracles, published rules, packaged policies and files."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from kvpolicy.faults import InputFault
from kvpolicy.simulate.baselines import BASELINES, FORESIGHT, RULES
from kvpolicy.simulate.published import PUBLISHED

if TYPE_CHECKING:
    from kvpolicy.policy.policy import Policy

LRU, BELADY, BELADY_RESIDENT = "lru", "belady", "belady-resident"
ORACLES = (BELADY, BELADY_RESIDENT)


@dataclass(frozen=True, slots=True)
class Contender:
    """One `--policy`: its name, what kind it is, and its text where it is a policy."""

    name: str
    kind: str  # LRU, "oracle", "object", "rule", "foresight" or "policy"
    baseline: bool
    target: str | None = None  # file or packaged name
    text: str | None = None  # of a published rule

    def policy(self) -> Policy | None:
        """The compiled policy; None for what is none. Raises PolicyFault."""
        return _compiled(self) if self.kind == "policy" else None


@lru_cache
def _compiled(one: Contender) -> Policy:
    """Load, check and compile; once a process."""
    from kvpolicy.language.load import load, load_text
    from kvpolicy.policy.checked import examined

    loaded = load_text(one.text, one.name) if one.text is not None else load([one.target or one.name])
    return examined(loaded).policy()


def contender(name: str) -> Contender:
    """What `name` stands for. Raises InputFault with the names there are."""
    if name == LRU:
        return Contender(name, LRU, True)
    if name in ORACLES:
        return Contender(name, "oracle", True)
    if name in BASELINES:
        return Contender(name, "object", True)
    if name in RULES:
        return Contender(name, "rule", True)
    if name in FORESIGHT:
        return Contender(name, "foresight", True)
    if name in PUBLISHED:
        return Contender(name, "policy", True, text=PUBLISHED[name])
    if name.endswith(".kvp") or "/" in name:
        if not Path(name).is_file():
            raise InputFault(
                f"{name}: no such file; --policy takes a .kvp file, a packaged policy or a baseline ({_baselines()})"
            )
        return Contender(name, "policy", False, target=name)
    if name not in packaged():
        raise InputFault(
            f"{name}: no policy of that name; packaged are {', '.join(packaged())}; baselines are {_baselines()}"
        )
    return Contender(name, "policy", False, target=name)


def packaged() -> list[str]:
    """Names of the policies that come with the package."""
    from kvpolicy.language.load import packaged_names

    return list(packaged_names())


def _baselines() -> str:
    return ", ".join([LRU, *BASELINES, *RULES, *PUBLISHED, *FORESIGHT, *ORACLES])
