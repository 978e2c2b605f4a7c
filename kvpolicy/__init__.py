"""kvpolicy: what an LLM server should keep in its KV cache, said in a language and carried out in the engine.

    policy = kvpolicy.load("continuum")
    engine = kvpolicy.Engine(policy, blocks=4096, block_size=16)

Importing it loads none of the heavy dependencies (fastapi, networkx, redis, pydantic); `tests/test_imports.py`
holds that. All names but the faults are loaded when they are first asked for.
"""

from typing import TYPE_CHECKING, Any

from kvpolicy.faults import InputFault, KvpError, PolicyFault

if TYPE_CHECKING:
    from kvpolicy.awaited import AsyncEngine
    from kvpolicy.claims.answers import Answer
    from kvpolicy.directive import Directive, Plan
    from kvpolicy.embedded import Engine, check, load
    from kvpolicy.faults import Diagnostic, Notice
    from kvpolicy.policy.policy import Policy
    from kvpolicy.request import Owner, Request, Span
    from kvpolicy.runs import Run
    from kvpolicy.steering import Outcome
    from kvpolicy.workflow.events import Event
    from kvpolicy.workflow.graph import Graph

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "AsyncEngine",
    "Diagnostic",
    "Directive",
    "Engine",
    "Event",
    "Graph",
    "InputFault",
    "KvpError",
    "Notice",
    "Outcome",
    "Owner",
    "Plan",
    "Policy",
    "PolicyFault",
    "Request",
    "Run",
    "Span",
    "__version__",
    "check",
    "load",
]

# The rest of the face, by the module that it is loaded from.
_LATER = {
    "Answer": "claims.answers",
    "AsyncEngine": "awaited",
    "Diagnostic": "faults",
    "Directive": "directive",
    "Engine": "embedded",
    "Event": "workflow.events",
    "Graph": "workflow.graph",
    "Notice": "faults",
    "Outcome": "steering",
    "Owner": "request",
    "Plan": "directive",
    "Policy": "policy.policy",
    "Request": "request",
    "Run": "runs",
    "Span": "request",
    "check": "embedded",
    "load": "embedded",
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
