"""What is dead: claims that a newer request of their chain shows will not be asked for again.

Decisions only: the ledger settles the lines that come back. A block that the newest request of a chain does not
reproduce is of no more use to its owner; nothing dies while it still may be asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence

from kvpolicy.claims.arrival import Arrival
from kvpolicy.claims.claim import SHARED_LIFETIMES, Claim
from kvpolicy.claims.line import Line
from kvpolicy.claims.owners import Chain, Holder, carries_result

FOREIGN_REQUESTS = 2  # so many in a row with another head end a chain


def bury(holder: Holder, arrival: Arrival) -> list[Line]:
    """End the claims that a request of `holder` shows to be dead; returns the lines that changed."""
    changed: list[Line] = []
    own = holder.chains.get(arrival.head)
    answered = bool(arrival.waits) and _brings_result(arrival, _goes_on_from(own, arrival.hashes))
    others_answered = answered and (own is None or not _awaits(holder, arrival.head, own, arrival.waits))
    for head, chain in holder.chains.items():
        chain.awaits = _awaits(holder, head, chain, arrival.waits)
        if chain is own:
            changed += _newest(chain, arrival)
            chain.awaits = chain.awaits and not answered
            continue
        chain.awaits = chain.awaits and not others_answered
        if not _guarded(chain):
            chain.foreign += 1
            if chain.foreign >= FOREIGN_REQUESTS:
                for line in chain.lines:
                    line.claims = []
                    changed.append(line)
    return changed


def is_aside(holder: Holder, arrival: Arrival) -> bool:
    """Whether a request that comes while its owner waits for a tool is none that the tool's result leads to: it brings
    none, and does not go on in a chain that waits."""
    if not holder.chains or _brings_result(arrival, 0):
        return False
    chain = holder.chains.get(arrival.head)
    if chain is None or not _awaits(holder, arrival.head, chain, arrival.waits):
        return True
    return not any(line.reproduced(arrival.hashes) == len(line.claims) for line in chain.lines)


def _awaits(holder: Holder, head: Hashable, chain: Chain, waits: Collection[str | None]) -> bool:
    """Whether a chain waits for a result. It does so until one of its own has come or no call of its owner is open: run
    state takes any result that names no call for that of every call."""
    if not waits or chain.awaits:
        return bool(waits)
    if any(line.request is not None and line.request.id in waits for line in chain.lines):
        return True
    return None in waits and head == holder.latest  # events told of the call; this chain's answer was the last before


def _brings_result(arrival: Arrival, reproduced: int) -> bool:
    """Whether a request brings a result behind its first `reproduced` blocks, or says so without showing where."""
    return arrival.request.brings or carries_result(arrival.layout, reproduced)


def _newest(chain: Chain, arrival: Arrival) -> list[Line]:
    chain.foreign = 0
    compacted, chain.compacted = chain.compacted, False
    changed = []
    for line in chain.lines:
        count = line.reproduced(arrival.hashes)
        if count == len(line.claims):
            continue
        waits = chain.awaits and not _brings_result(arrival, line.claims[count - 1].full if count else 0)
        # INVARIANT: nothing dies while a request of the chain runs, or a call waits whose result this one lacks.
        if (chain.running or waits) and not compacted:
            continue
        kept = [claim for claim in line.claims[count:] if claim.lifetime in SHARED_LIFETIMES]
        line.claims = line.claims[:count] + kept
        changed.append(line)
    return changed


def _guarded(chain: Chain) -> bool:
    return (chain.running > 0 or chain.awaits) and not chain.compacted


def _goes_on_from(chain: Chain | None, hashes: Sequence[Hashable]) -> int:
    """Leading blocks that a request has in common with what its chain claims so far."""
    found = 0
    for line in chain.lines if chain is not None else ():
        count = line.reproduced(hashes)
        if count:
            found = max(found, line.claims[count - 1].full)
    return found


def stands_in(manual: Iterable[Line], claim: Claim, hashes: Sequence[Hashable]) -> bool:
    """Whether a claim by call covers an implicit one of the same owner on the prompt `hashes`."""
    for line in manual:
        called = line.claims[0]
        if claim.full <= called.full <= len(hashes) and hashes[called.full - 1] == called.proof:
            return True
    return False


def yield_to(line: Line, hashes: Sequence[Hashable]) -> bool:
    """Let a line's implicit claims on the prompt `hashes` yield to a claim by call for all of it; True if any did."""
    changed = False
    for claim in line.claims[: line.reproduced(hashes)]:
        if claim.implicit and claim.length <= len(hashes) and not claim.yields:
            claim.yields = changed = True
    return changed


def behind(line: Line, dropped: Claim) -> bool:
    """Drop what a line of the same owner holds behind a dropped span, where it is known to go through it."""
    changed = False
    through = False
    for claim in line.claims:
        if through and not claim.dropped and (dropped.by_kind or claim.lifetime not in SHARED_LIFETIMES):
            claim.spread = changed = True
        through = through or (claim.full == dropped.full and claim.proof == dropped.proof)
    return changed
