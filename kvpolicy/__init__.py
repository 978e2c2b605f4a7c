"""kvpolicy: what an LLM server should keep in its KV cache, said in a language and carried out in the engine.

    policy = kvpolicy.load("continuum")
    engine = kvpolicy.Engine(policy, blocks=4096, block_size=16)     # one in this process, or
    service = kvpolicy.Service("http://127.0.0.1:8700")              # `kvp serve`, in front of real ones

Importing it loads none of the heavy dependencies (fastapi, networkx, redis, pydantic); `tests/test_imports.py`
holds that. All names but the faults are loaded when they are first asked for.
"""

from typing import TYPE_CHECKING, Any

from kvpolicy.faults import InputFault, KvpError, PolicyFault

if TYPE_CHECKING:
    from kvpolicy.awaited import AsyncEngine
    from kvpolicy.claims.answers import Answer
    from kvpolicy.client.here import barrier, base_url, body, branch, event, headers, run, said, spans, step, tool
    from kvpolicy.client.scope import Mark, mark
    from kvpolicy.client.service import AsyncService, Service
    from kvpolicy.client.transport import annotate
    from kvpolicy.directive import Directive, Plan
    from kvpolicy.embedded import Engine
    from kvpolicy.faults import Diagnostic, Notice
    from kvpolicy.loading import check, load
    from kvpolicy.policy.policy import Policy
    from kvpolicy.request import Owner, Request, Span
    from kvpolicy.runs import Run, current_run
    from kvpolicy.steering import Outcome
    from kvpolicy.workflow.events import Event
    from kvpolicy.workflow.graph import Graph

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "AsyncEngine",
    "AsyncService",
    "Diagnostic",
    "Directive",
    "Engine",
    "Event",
    "Graph",
    "InputFault",
    "KvpError",
    "Mark",
    "Notice",
    "Outcome",
    "Owner",
    "Plan",
    "Policy",
    "PolicyFault",
    "Request",
    "Run",
    "Service",
    "Span",
    "__version__",
    "annotate",
    "barrier",
    "base_url",
    "body",
    "branch",
    "check",
    "current_run",
    "event",
    "headers",
    "load",
    "mark",
    "run",
    "said",
    "spans",
    "step",
    "tool",
]

# The rest of the face, by the module that it is loaded from.
_LATER = {
    "Answer": "claims.answers",
    "AsyncEngine": "awaited",
    "AsyncService": "client.service",
    "Diagnostic": "faults",
    "Directive": "directive",
    "Engine": "embedded",
    "Event": "workflow.events",
    "Graph": "workflow.graph",
    "Mark": "client.scope",
    "Notice": "faults",
    "Outcome": "steering",
    "Owner": "request",
    "Plan": "directive",
    "Policy": "policy.policy",
    "Request": "request",
    "Run": "runs",
    "Service": "client.service",
    "Span": "request",
    "annotate": "client.transport",
    "barrier": "client.here",
    "base_url": "client.here",
    "body": "client.here",
    "branch": "client.here",
    "check": "loading",
    "current_run": "runs",
    "event": "client.here",
    "headers": "client.here",
    "load": "loading",
    "mark": "client.scope",
    "run": "client.here",
    "said": "client.here",
    "spans": "client.here",
    "step": "client.here",
    "tool": "client.here",
}


def __getattr__(name: str) -> Any:
    """A name of the face, loaded now."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
