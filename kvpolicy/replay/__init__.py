"""Timelines: requests, events, claims and evictions step by step on the embedded engine, with the clock in the steps.

Read by `kvp replay`; `Replay` takes steps as dictionaries and gives answers as dictionaries.
"""

from kvpolicy.replay.replay import Replay

__all__ = ["Replay"]
