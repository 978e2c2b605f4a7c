"""How sessions without start times are laid beside each other. Stated on the command line, read by `sessions`."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from kvpolicy.faults import InputFault
from kvpolicy.units import format_duration


@dataclass(frozen=True, slots=True)
class Interleaving:
    """How sessions are laid beside each other.

    seed draws the sample and the starts. window_s: starts are uniform over [0, window). gap_cap_s: longest time kept
    from one call of a session to its next. coarsen: source blocks per block. sample: how many sessions, None for all.
    part: `r/n` keeps sessions whose SHA-256 of the id leaves r modulo n, `!r/n` the others (tuning must not see the
    part that it is judged on).
    """

    seed: int = 7
    window_s: float = 4 * 3600.0
    gap_cap_s: float = 3600.0
    coarsen: int = 1
    sample: int | None = None
    part: str | None = None

    def __post_init__(self) -> None:
        """Raises InputFault for settings that mean nothing."""
        if self.coarsen < 1:
            raise InputFault(f"--coarsen {self.coarsen}: at least one source block makes a block; give 1 or more")
        if self.coarsen > 1 << 20:
            raise InputFault(f"--coarsen {self.coarsen}: more than any prompt has; give at most {1 << 20}")
        if self.sample is not None and self.sample < 1:
            raise InputFault(f"--sample {self.sample}: draw at least one session")
        remainder, _, modulus = ("0/1" if self.part is None else self.part).removeprefix("!").partition("/")
        if not (remainder.isdecimal() and modulus.isdecimal() and int(remainder) < int(modulus)):
            raise InputFault(f"--part {self.part}: write it as R/N with R below N, such as 0/4 or !0/4")

    def describe(self) -> str:
        """One clause for reports."""
        text = f"interleaved by us: seed {self.seed}, starts uniform over {format_duration(self.window_s)}"
        text += f", gaps capped at {format_duration(self.gap_cap_s)}, {self.coarsen} source blocks to one"
        text += f", {self.sample} sessions drawn" if self.sample is not None else ""
        return text + (f", part {self.part} of the sessions" if self.part else "")

    def keeps(self, session: str) -> bool:
        """Is the session in `part`?"""
        if self.part is None:
            return True
        remainder, _, modulus = self.part.lstrip("!").partition("/")
        inside = int(hashlib.sha256(session.encode()).hexdigest(), 16) % int(modulus) == int(remainder)
        return inside != self.part.startswith("!")
