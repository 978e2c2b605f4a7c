"""Learned times in the store, so that they outlive the service: each replica keeps a document, a new one begins with
the best that is kept.

All replicas learn from the same records, so their documents say nearly the same and are never added up: that would
count everything as often as there are replicas. The one that has learned from most is taken.
"""

from __future__ import annotations

from collections.abc import Iterable

from kvpolicy.faults import InputFault
from kvpolicy.store.contract import Document, Store
from kvpolicy.workflow import keep
from kvpolicy.workflow.classes import Classes
from kvpolicy.workflow.hold import Memoryfulness
from kvpolicy.workflow.learned import Learned
from kvpolicy.workflow.learned_times import LearnedTimes

KIND = "learned"


def keep_learned(store: Store, learned: Learned, source: str, tenants: Iterable[str] | None = None) -> int:
    """Keep what was learned of these tenants (None: of all). source: this replica's name; one name each, the same
    after a restart where that is possible, else the old documents stay 30 days beside the new. Returns how many
    documents are where they outlive the process."""
    lasting = 0
    for tenant in learned.tenants() if tenants is None else tenants:
        lasting += store.keep(KIND, tenant, source, learned.export(tenant))
    return lasting


def take_up(store: Store, learned: Learned, tenant: str) -> bool:
    """Begin where others, or this replica before its restart, left off. Returns whether something was taken."""
    return take_best(store.kept(KIND, tenant), learned, tenant)


def take_best(documents: Iterable[Document], learned: Learned, tenant: str) -> bool:
    """Take the best of a tenant's documents if it knows more than is known here. What does not fit is passed over.
    Returns whether one was taken."""
    best: tuple[LearnedTimes, Memoryfulness, Classes] | None = None
    for document in documents:
        try:
            found = keep.read(document.body, learned.half_life)
        except InputFault:
            continue  # of another version, or not written by us
        if best is None or _weight(found[0]) > _weight(best[0]):
            best = found
    if best is None or _weight(best[0]) <= _weight(learned.known(tenant)[0]):
        return False
    learned.replace(tenant, *best)
    return True


def _weight(times: LearnedTimes) -> float:
    return times.tools.weight + times.human.weight + times.step.weight
