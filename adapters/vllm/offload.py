"""The CPU tier's order of eviction: vLLM's own least recently used policy, by rank first.

`CachePolicyFactory` loads it from the connector's extra configuration: `"eviction_policy": "RankedCachePolicy",
"cache_policy_module_path": "kvpolicy.adapters.vllm.offload"`. It reads what a request says of its blocks from the
request's own context (`kv_transfer_params` or `kv_hints`; `vllm_xargs` do not reach it). Without directives the order
is the parent's, as every entry then has one rank. Importing it needs vLLM.
"""

from __future__ import annotations

import heapq
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf
from types import SimpleNamespace
from typing import Any

from vllm.v1.kv_offload.cpu.policies.lru import LRUCachePolicy

from kvpolicy.adapters.vllm.carried import carried_by
from kvpolicy.channel.payload import Told, read
from kvpolicy.claims.strength import DEFAULT, DROPPED, PROTECTED
from kvpolicy.directive import DROP, Directive
from kvpolicy.request import Owner, OwnerKey

log = logging.getLogger("vllm.kvpolicy")

Key = bytes
Wish = tuple[OwnerKey, int, float, float]  # whose, strength, expires (a time), seconds that it lasts from the last use
MOST_OWNERS = 16  # of one chunk: beyond them the weakest gives way
_NOBODY = Owner().key
_FAR = 1 << 62


@dataclass(slots=True)
class _Said:
    """A request's spans as (end in tokens, strength, seconds that it lasts from the last use), strongest first."""

    owner: OwnerKey
    spans: list[tuple[float, int, float]]


class RankedCachePolicy(LRUCachePolicy):  # type: ignore[misc, unused-ignore]
    """INVARIANT: a chunk is as evictable as the parent has it; a rank decides only which goes first. INVARIANT: what is
    kept here is bounded by the chunks that are stored."""

    clock: Callable[[], float] = staticmethod(time.monotonic)

    def __init__(self, cache_capacity: int) -> None:
        super().__init__(cache_capacity)
        self._claims: dict[Key, dict[OwnerKey, tuple[int, float, float]]] = {}  # strength, expires, lasting
        self._coming: dict[Key, Wish] = {}  # of the keys that the manager is about to insert
        self._due: list[tuple[float, Key]] = []
        self._room = 64  # of `_due`, until it is looked through for what is no longer due
        self._engaged = False
        self.failures = 0

    # --- what the manager tells -------------------------------------------------------------------------------------

    def on_store_miss(self, keys: Iterable[Key], req_context: Any) -> None:
        keys = list(keys)
        self._coming = dict(self._wishes(keys, req_context))
        super().on_store_miss(keys, req_context)

    def on_request_finished(
        self, key_groups: Sequence[Sequence[Key]], insertion_only_keys: Any, reused_keys: Any, req_context: Any
    ) -> None:
        for keys in key_groups:
            self._claim_all(self._wishes([key for key in keys if key in self.chunks], req_context))
        super().on_request_finished(key_groups, insertion_only_keys, reused_keys, req_context)

    def insert(self, key: Key, chunk: Any, *context: Any) -> None:  # the request's, from 0.33 on
        wish = self._coming.pop(key, None)
        if wish is not None:
            self._claim_all([(key, wish)])  # first: the parent asks for its standing
        super().insert(key, chunk, *context)

    def remove(self, key: Key) -> None:
        super().remove(key)
        self._claims.pop(key, None)

    def clear(self) -> None:
        super().clear()
        self._forget()

    def evict(self, n: int, protected: set[Key]) -> Any:
        if self._engaged:
            self._lapse()
        gone = super().evict(n, protected)
        if gone is not None and self._claims:
            for key, _ in gone:
                self._claims.pop(key, None)
        return gone

    # --- the parent's heap, with the rank in front -------------------------------------------------------------------

    def _push_evictable(self, key: Key) -> None:
        heapq.heappush(self._heap, (self._standing(key), key))

    def _is_current(self, entry: Any) -> bool:
        standing, key = entry
        return key in self._evictable and key in self._ranks and self._standing(key) == standing

    def _maybe_compact_heap(self) -> None:
        if len(self._heap) >= max(64, 2 * len(self._evictable)):
            self._rebuild()

    def _update_recency(self, keys: Iterable[Key]) -> None:
        self._update_heap([key for key in keys if self._assign_new_rank(key)])

    def _update_heap(self, updated_evictable: Sequence[Key]) -> None:
        if len(updated_evictable) >= max(64, len(self._evictable) // 4):
            self._rebuild()
            return
        for key in updated_evictable:
            self._push_evictable(key)
        self._maybe_compact_heap()

    def _rebuild(self) -> None:
        self._heap = [(self._standing(key), key) for key in self._evictable]
        heapq.heapify(self._heap)

    def _standing(self, key: Key) -> Any:
        return (self._strength(key), self._ranks[key])

    # --- claims -----------------------------------------------------------------------------------------------------

    def _strength(self, key: Key) -> int:
        claims = self._claims.get(key)
        return DEFAULT if not claims else max(strength for strength, _, _ in claims.values())

    def _wishes(self, keys: Iterable[Key], context: Any) -> list[tuple[Key, Wish]]:
        """What a request's context asks for each of them; nothing before the first directive came."""
        try:
            said = self._said(context)
            if said is None and not self._engaged:
                return []
            self._engaged = True
            return [(key, self._wish_for(key, context, said)) for key in keys]
        except Exception as fault:
            self._failed(fault)
            return []

    def _wish_for(self, key: Key, context: Any, said: _Said | None) -> Wish:
        if said is None:
            return (_NOBODY, DEFAULT, inf, inf)
        place = context.get_offload_key_position(key)
        covering = [span for span in said.spans if place is not None and span[0] >= place]
        _, strength, lasting = max(covering, key=lambda s: s[1], default=(0.0, DEFAULT, inf))
        return (said.owner, strength, inf if strength <= DEFAULT else self.clock() + lasting, lasting)

    def _claim_all(self, wishes: Iterable[tuple[Key, Wish]]) -> None:
        try:
            for key, wish in wishes:
                self._claim(key, wish)
        except Exception as fault:
            self._failed(fault)

    def _claim(self, key: Key, wish: Wish) -> None:
        owner, strength, expires, lasting = wish
        before = self._strength(key)
        claims = self._claims.setdefault(key, {})
        claims[owner] = (strength, expires, lasting)
        if len(claims) > MOST_OWNERS:
            del claims[min(claims, key=lambda each: claims[each][:2])]
        if expires < inf:
            heapq.heappush(self._due, (expires, key))
            if len(self._due) > self._room:
                self._look_through()
        if key in self._evictable and self._strength(key) != before:
            self._push_evictable(key)

    def _look_through(self) -> None:
        """Every use of a chunk moves its end, and leaves the one before in `_due`."""
        self._due = [
            (ends, key) for key, claims in self._claims.items() for _, ends, _ in claims.values() if ends < inf
        ]
        heapq.heapify(self._due)
        self._room = max(64, 2 * len(self._due))

    def _lapse(self) -> None:
        now = self.clock()
        while self._due and self._due[0][0] <= now:
            _, key = heapq.heappop(self._due)
            claims = self._claims.get(key)
            if claims is None:
                continue
            before = self._strength(key)
            for owner, (strength, expires, lasting) in list(claims.items()):
                if expires <= now:
                    claims[owner] = (min(DEFAULT, strength), inf, lasting)  # lapsing never raises
            if key in self._evictable and self._strength(key) != before:
                self._push_evictable(key)

    def _forget(self) -> None:
        for table in (self._claims, self._coming, self._due):
            table.clear()

    def _said(self, context: Any) -> _Said | None:
        said = context.get_state(_Said)
        if said is not None:
            return said  # type: ignore[no-any-return]
        params = context.kv_transfer_params
        carrier = SimpleNamespace(kv_transfer_params=params, sampling_params=None, kv_hints=context.kv_hints)
        carried = carried_by(carrier)
        if carried is None:
            return None
        now = self.clock()
        told = read(carried, str(context.req_id), _FAR, 1, now)
        context.set_state(said := _said_of(told, now))
        return said

    def _failed(self, fault: Exception) -> None:
        self.failures += 1
        self._forget()
        self._rebuild()
        log.warning("kvpolicy: the CPU tier's order broke (%r); it is least recently used again", fault)


def _said_of(told: Told, now: float) -> _Said:
    spans = []
    for index, span in enumerate(told.request.spans):
        directive = told.directives.get(index)
        if directive is not None:
            end = inf if span.end is None else float(span.end)
            spans.append((end, *_wish(directive, now)))
    return _Said(told.request.owner.key, spans)


def _wish(directive: Directive, now: float) -> tuple[int, float]:
    """Strength, and seconds from the last use for which it lasts. A hold's own end is not told apart from a ttl's."""
    if directive.retention.mode == DROP:
        return DROPPED, inf
    hold = directive.hold_after_release
    if directive.protected_until is not None:
        hold = max(directive.protected_until - now, hold or 0.0)
    if hold:
        return PROTECTED + directive.priority, hold
    return directive.priority, inf if directive.ttl is None else directive.ttl
