"""Steering: one policy, one pool, one state of runs, tied together the same way for everyone who replays or serves."""

from kvpolicy.steering.outcome import Outcome
from kvpolicy.steering.steering import Steering

__all__ = ["Outcome", "Steering"]
