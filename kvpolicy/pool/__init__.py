"""The embedded engine: a pool of KV blocks with ranks, its own order of eviction, and lower tiers."""

from kvpolicy.pool.lease import BlockView, Lease
from kvpolicy.pool.mark import Listener, Mark
from kvpolicy.pool.pool import Pool

__all__ = ["BlockView", "Lease", "Listener", "Mark", "Pool"]
