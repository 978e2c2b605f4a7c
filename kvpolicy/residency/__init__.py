"""Which blocks every worker has, as far as its events tell: for routing, for `kvp replay`, for claims on real engines.

Events come from `kvp replay`, an adapter or the embedded engine; look-ups renew nothing.
"""

from kvpolicy.residency.events import KvEvent, event_from_row
from kvpolicy.residency.index import Residency, WorkerSettings
from kvpolicy.residency.source import LIVE, NO_EVENTS, STALE, BlockRow, Taken

__all__ = [
    "LIVE",
    "NO_EVENTS",
    "STALE",
    "BlockRow",
    "KvEvent",
    "Residency",
    "Taken",
    "WorkerSettings",
    "event_from_row",
]
