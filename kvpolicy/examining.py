"""What an examination of a running engine found, and how an adapter's doctor is called.

Doctors come by entry point (`kvpolicy.doctors`); `kvp doctor` prints their findings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import entry_points

from kvpolicy.faults import InputFault

GROUP = "kvpolicy.doctors"
GOOD, MISSING, BROKEN, UNKNOWN = "good", "missing", "broken", "unknown"


@dataclass(frozen=True, slots=True)
class Finding:
    """name: what was looked at. state: good, missing (and a flag adds it), broken, or unknown. mend: what to do."""

    name: str
    state: str
    message: str
    mend: str | None = None
    details: dict[str, object] = field(default_factory=dict)

    def as_json(self) -> dict[str, object]:
        """A row of `kvp doctor --format json`."""
        return {
            "name": self.name,
            "state": self.state,
            "message": self.message,
            "mend": self.mend,
            **({"details": self.details} if self.details else {}),
        }


@dataclass(frozen=True, slots=True)
class Patient:
    """url: where the engine serves. channel, token: its control channel, where one was named. flood: the cache may be
    filled to see an effect. model: which one to ask, None for the first it has."""

    url: str
    channel: str | None = None
    token: str | None = None
    flood: bool = False
    model: str | None = None


def find_doctor(engine: str) -> Callable[[Patient], list[Finding]]:
    """The doctor for that engine. Raises InputFault naming the installed ones."""
    offered = {point.name: point for point in entry_points(group=GROUP)}
    if engine not in offered:
        known = ", ".join(sorted(offered)) or "none"
        raise InputFault(f"no doctor for engine '{engine}' is installed (installed: {known})")
    try:
        found: Callable[[Patient], list[Finding]] = offered[engine].load()
    except (ImportError, AttributeError) as fault:
        raise InputFault(f"the doctor for engine '{engine}' cannot be loaded: {fault}") from fault
    return found
