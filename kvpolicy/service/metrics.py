"""`kvpolicy_…` for Prometheus, read from the counters that the parts keep anyway; nothing is counted twice.

Served by `app` at /metrics. Labels are bounded: tenants and policies of the configuration, outcomes, engines; never a
session, a request or a client's own word.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.registry import Collector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BUCKETS = (0.00025, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5)
MOST_LABELS = 1000
OTHER = "other"


class Metrics:
    """One registry a gateway."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.decide = Histogram(
            "kvpolicy_decision_duration_seconds",
            "Time from a request's arrival to its way out.",
            registry=self.registry,
            buckets=_BUCKETS,
        )
        self.first_byte = Histogram(
            "kvpolicy_time_to_first_byte_seconds",
            "Time from a request's arrival to the first byte of its answer.",
            ["engine"],
            registry=self.registry,
        )
        self.tokens: dict[tuple[str, str], int] = {}  # by tenant and kind
        self._tenants: set[str] = set()

    def watch(self, collector: Collector) -> None:
        """Read these counters, too."""
        self.registry.register(collector)

    def count_tokens(self, tenant: str, cached: int, prompt: int, output: int) -> None:
        """What an answer said of itself: cached and uncached prompt tokens apart, so that their rates are, too."""
        name = self._bounded(tenant)
        for kind, count in (("cached", cached), ("uncached", prompt - cached), ("output", output)):
            key = (name, kind)
            self.tokens[key] = self.tokens.get(key, 0) + max(count, 0)

    def exposition(self) -> bytes:
        """The text."""
        return generate_latest(self.registry)

    def _bounded(self, tenant: str) -> str:
        if tenant not in self._tenants and len(self._tenants) >= MOST_LABELS:
            return OTHER
        self._tenants.add(tenant)
        return tenant
