"""The counters of the gateway's parts as Prometheus families: read when they are scraped, counted where things happen.

Registered with `Metrics.watch`. Labels are bounded: outcomes, codes, statuses, engines and tenants of the
configuration.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from kvpolicy.service.metrics import Metrics
from kvpolicy.store.contract import SHARED

# part, family, text, label: parts with plain counters
_OTHERS = (
    ("channels", "kvpolicy_channel", "Messages of the control channels, and answers by status.", "what"),
    ("outbox", "kvpolicy_outbox", "Messages to engines that had no room for them at once.", "what"),
    ("doctor", "kvpolicy_prefix_doctor", "Prompts that do not go on as the ones before, by code.", "code"),
    ("routing", "kvpolicy_routing", "Requests by how their engine was chosen.", "how"),
    ("telling", "kvpolicy_replicas", "What replicas tell each other.", "what"),
    ("tokenizing", "kvpolicy_tokenizing", "Questions to engines' tokenizers.", "what"),
    ("journal", "kvpolicy_decision_log", "Rows of the decision log.", "what"),
)


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
        rows = [(n, getattr(offsets, n)) for n in ("known", "fetched", "shared", "unknown", "asked")]
        yield counted("kvpolicy_places", "Places of messages in tokens.", "what", rows)
        tokens = CounterMetricFamily("kvpolicy_tokens", "Tokens by the engine's own counts.", labels=["tenant", "kind"])
        for (tenant, kind), count in self._metrics.tokens.items():
            tokens.add_metric([tenant, kind], count)
        yield tokens
        running = GaugeMetricFamily("kvpolicy_requests_running", "Requests on their way.")
        running.add_metric([], proxy.running)
        yield running
        yield from self._more(decisions)
        store = self._parts["store"].status()
        for name, text, value in (
            (
                "kvpolicy_store_shared",
                "Whether the store answers: 0 while this replica goes on alone.",
                store.mode == SHARED,
            ),
            ("kvpolicy_store_replicas", "Gateways that were last seen to share the store.", store.replicas),
            ("kvpolicy_sessions", "Chains that are remembered.", len(decisions.sessions)),
            ("kvpolicy_owners_held", "Owners for whom engines hold something by our plans.", len(holding.plans)),
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

    def _more(self, decisions: Any) -> Iterator[Metric]:
        """Hints by their answers, gains, and the parts that are not always there."""
        yield counted(
            "kvpolicy_hints", "Requests' hints by what they were answered.", "status", decisions.answers.items()
        )
        gains = CounterMetricFamily(
            "kvpolicy_reuse_tokens",
            "Prompt tokens that chains' last prompts had: reusable, missed, and of those missed protected and raised.",
            labels=["mode", "what"],
        )
        for (mode, what), count in list(decisions.gains.counts.items()):
            gains.add_metric([mode, what], count)
        yield gains
        policies = decisions.policies.counts
        reloads = ((k.removeprefix("reload_"), v) for k, v in list(policies.items()) if k.startswith("reload_"))
        yield counted("kvpolicy_reload", "Files of policies read anew.", "result", reloads)
        brought = ((k.removeprefix("changed_"), v) for k, v in list(policies.items()) if k.startswith("changed_"))
        yield counted("kvpolicy_policy_changes", "Versions by what brought them.", "source", brought)
        following = self._parts["following"]
        yield counted("kvpolicy_configuration", "The configuration read anew.", "result", following.counts.items())
        refused = GaugeMetricFamily("kvpolicy_refused_on_disk", "Whether files are wrong, and not in force.",
                                    labels=["what"])  # fmt: skip
        refused.add_metric(["policies"], float(decisions.policies.fault is not None))
        refused.add_metric(["configuration"], float(following.fault is not None))
        yield refused
        for part, name, text, label in _OTHERS:
            found = self._parts.get(part)
            if found is not None:
                yield counted(name, text, label, found.counts.items())
        residents = self._parts.get("residents")
        if residents is not None and residents:
            states = GaugeMetricFamily("kvpolicy_events_state", "KV events of an engine: 1 in its state.",
                                       labels=["engine", "rank", "state"])  # fmt: skip
            for url, rank, state in residents.states():
                states.add_metric([url, str(rank), state], 1)
            yield states
        listening = GaugeMetricFamily("kvpolicy_channel_up", "Whether an engine listens at its control channel.",
                                      labels=["engine"])  # fmt: skip
        names = {engine.url: engine.settings.name or engine.url for engine in self._parts["proxy"].upstreams.engines}
        for url, up in self._parts["channels"].states():
            listening.add_metric([names[url]], float(up))
        yield listening


def counted(name: str, text: str, label: str, rows: Iterable[tuple[str, float]]) -> CounterMetricFamily:
    """A family of counters with one label."""
    family = CounterMetricFamily(name, text, labels=[label])
    for value, count in list(rows):
        family.add_metric([value], count)
    return family
