"""One pause between an answer of an owner and its next request. `life` holds it, `pauses` opens and closes it."""

from __future__ import annotations

from kvpolicy.workflow.hazard import Hazard


class Pause:
    """Since when, of which class, and up to which age its classes know of it."""

    __slots__ = ("at", "hazard", "known", "open")

    def __init__(self, at: float, hazard: Hazard) -> None:
        self.at = at
        self.hazard = hazard
        self.known = 0.0
        self.open = True
