"""OpenTelemetry: a span for each model request, with `gen_ai.*`, and the trace passed on to the engine.

A stage, the last one, made by `assembly` where the configuration names a collector (extra `otel`). A trace that a
client began goes on; the engine gets the gateway's span as its parent. Names of sessions stand as keyed hashes, as in
the decision log; no word of a prompt or an answer is written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvpolicy.faults import InputFault, install
from kvpolicy.service.config import Trace
from kvpolicy.service.exchange import CHAT, COMPLETIONS, DONE, MESSAGES, RESPONSES, Exchange
from kvpolicy.service.seen import Seen

OPERATIONS = {CHAT: "chat", COMPLETIONS: "text_completion", RESPONSES: "chat", MESSAGES: "chat"}
PROVIDERS = {MESSAGES: "anthropic"}  # of the dialect that is spoken; the engine behind it is its own
_PASSED = ("traceparent", "tracestate")


class Tracing:
    """settings: where spans go. hashed: how an identifier stands in them. Raises InputFault without the extra."""

    name = "tracing"

    def __init__(self, settings: Trace, hashed: Callable[[str | None], str | None]) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
            from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
            from opentelemetry.trace import SpanKind, StatusCode
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
        except ImportError as fault:
            raise InputFault(f"trace.endpoint: needs {fault.name}: {install('otel')}") from None
        self._provider = TracerProvider(
            resource=Resource.create({"service.name": "kvpolicy"}),
            sampler=ParentBased(TraceIdRatioBased(settings.sample)),
        )
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(settings.endpoint, timeout=5)))
        self._tracer = self._provider.get_tracer("kvpolicy")
        self._propagator = TraceContextTextMapPropagator()
        self._kind, self._error = SpanKind.SERVER, StatusCode.ERROR
        self._hashed = hashed

    async def enter(self, exchange: Exchange) -> None:
        """The span begins; the engine hears of it."""
        from opentelemetry.trace import set_span_in_context

        carrier = {name: exchange.headers[name] for name in _PASSED if name in exchange.headers}
        operation, model = OPERATIONS[exchange.dialect], exchange.body.get("model")
        span = self._tracer.start_span(
            f"{operation} {model[:200]}" if isinstance(model, str) else operation,
            context=self._propagator.extract(carrier),
            kind=self._kind,
            attributes={"gen_ai.operation.name": operation, "gen_ai.request.id": exchange.id},
        )
        exchange.notes[self.name] = span
        self._propagator.inject(exchange.sent_headers, set_span_in_context(span))

    def chunk(self, exchange: Exchange, data: bytes) -> None:
        """Nothing of it is kept."""

    def leave(self, exchange: Exchange, how: str) -> None:
        """The span ends with what came of it."""
        span: Any = exchange.notes.pop(self.name, None)
        if span is None:
            return
        seen: Seen | None = exchange.notes.get("decisions")
        told: dict[str, Any] = {
            "gen_ai.provider.name": PROVIDERS.get(exchange.dialect, "openai"),
            "http.response.status_code": exchange.status or None,
            "kvpolicy.tenant": exchange.tenant.name,
            "kvpolicy.outcome": how,
            "server.address": exchange.upstream,
        }
        if seen is not None:
            told |= self._seen(seen)
        for name, value in told.items():
            if value is not None:
                span.set_attribute(name, value)
        if how != DONE:
            span.set_status(self._error, how)
        span.end()

    def close(self) -> None:
        """Send what waits, and end."""
        self._provider.shutdown()

    def _seen(self, seen: Seen) -> dict[str, Any]:
        owner, reader, version = seen.arrived.owner, seen.reader, seen.chosen.version
        told = {
            "gen_ai.request.model": seen.conversation.model,
            "gen_ai.conversation.id": self._hashed(owner.session),
            "gen_ai.agent.name": self._hashed(owner.agent),
            "kvpolicy.policy": version.name,
            "kvpolicy.policy.version": version.number,
            "kvpolicy.mode": seen.chosen.mode,
            "kvpolicy.directives": None if seen.plan is None else len(seen.plan.directives),
        }
        if reader is not None:
            told |= {
                "gen_ai.usage.input_tokens": reader.prompt,
                "gen_ai.usage.output_tokens": reader.output,
                "gen_ai.usage.cache_read.input_tokens": reader.cached,
            }
        return told
