"""`kvpolicy_…` for Prometheus, read from the counters that the parts keep anyway; nothing is counted twice.

Served by `app` at /metrics. Labels are bounded: tenants and policies of the configuration, outcomes, engines; never a
session, a request or a client's own word.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
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
        self.tokens: dict[tuple[str, str, str], int] = {}
        self._tenants: set[str] = set()

    def watch(self, collector: Collector) -> None:
        """Read these counters, too."""
        self.registry.register(collector)

    def count_tokens(self, tenant: str, model: str | None, cached: int, prompt: int, output: int) -> None:
        """What an answer said of itself: cached and uncached prompt tokens apart, so that their rates are, too."""
        name = self._bounded(tenant)
        for kind, count in (("cached", cached), ("uncached", prompt - cached), ("output", output)):
            key = (name, kind, "")
            self.tokens[key] = self.tokens.get(key, 0) + max(count, 0)

    def exposition(self) -> bytes:
        """The text."""
        return generate_latest(self.registry)

    def _bounded(self, tenant: str) -> str:
        if tenant not in self._tenants and len(self._tenants) >= MOST_LABELS:
            return OTHER
        self._tenants.add(tenant)
        return tenant


class Parts(Collector):
    """The counters of the gateway's parts, by what they are called there."""

    def __init__(self, metrics: Metrics, parts: Mapping[str, Any]) -> None:
        self._metrics = metrics
        self._parts = parts

    def collect(self) -> Iterator[Metric]:
        """Every family."""
        proxy, decisions, holding = (self._parts[name] for name in ("proxy", "decisions", "holding"))
        outcomes = {k: v for k, v in proxy.counts.items() if not k.startswith("refused_")}
        yield counted("kvpolicy_requests", "Requests by what became of them.", "outcome", outcomes.items())
        refused = ((k.removeprefix("refused_"), v) for k, v in proxy.counts.items() if k.startswith("refused_"))
        yield counted("kvpolicy_refusals", "Requests that the gateway answered itself.", "status", refused)
        plain = {k: v for k, v in decisions.counts.items() if not k.startswith("warned_")}
        yield counted("kvpolicy_decisions", "Decisions by what became of them.", "outcome", plain.items())
        warned = ((k.removeprefix("warned_"), v) for k, v in decisions.counts.items() if k.startswith("warned_"))
        yield counted("kvpolicy_warnings", "Annotations answered by a code.", "code", warned)
        yield counted(
            "kvpolicy_replanning", "Plans read again, and what was told of it.", "what", holding.counts.items()
        )
        offsets = decisions.offsets.counts
        rows = [(n, getattr(offsets, n)) for n in ("known", "fetched", "unknown", "asked")]
        yield counted("kvpolicy_places", "Places of messages in tokens.", "what", rows)
        tokens = CounterMetricFamily("kvpolicy_tokens", "Tokens by the engine's own counts.", labels=["tenant", "kind"])
        for (tenant, kind, _), count in self._metrics.tokens.items():
            tokens.add_metric([tenant, kind], count)
        yield tokens
        running = GaugeMetricFamily("kvpolicy_requests_running", "Requests on their way.")
        running.add_metric([], proxy.running)
        yield running
        for name, text, value in (
            ("kvpolicy_sessions", "Chains that are remembered.", len(decisions.sessions)),
            ("kvpolicy_owners_held", "Owners for whom engines hold something by our plans.", len(holding)),
        ):
            gauge = GaugeMetricFamily(name, text)
            gauge.add_metric([], value)
            yield gauge
        info = GaugeMetricFamily("kvpolicy_policy_info", "Policies in force.", labels=["policy", "version", "digest"])
        for name in decisions.policies.names:
            version = decisions.policies.current(name)
            info.add_metric([name, str(version.number), version.digest[:16]], 1)
        yield info
        resting = GaugeMetricFamily("kvpolicy_upstream_up", "Whether an engine takes connections.", labels=["engine"])
        for engine in proxy.upstreams.engines:
            resting.add_metric([engine.settings.name or engine.url], float(not engine.failures))
        yield resting


def counted(name: str, text: str, label: str, rows: Iterable[tuple[str, float]]) -> CounterMetricFamily:
    """A family of counters with one label."""
    family = CounterMetricFamily(name, text, labels=[label])
    for value, count in rows:
        family.add_metric([value], count)
    return family
