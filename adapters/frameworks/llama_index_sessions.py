"""LlamaIndex: the runs of one `Context` are a session, also where nobody names one.

A run's spans do not say which `Context` it has; the handler that `Workflow.run` returns does, before the run begins.
Used by `llama_index`, which asks for a run's session when the run's span begins.
"""

from __future__ import annotations

import functools
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

from workflows import Workflow

from kvpolicy.adapters.frameworks.quiet import quiet

_contexts: WeakValueDictionary[str, Any] = WeakValueDictionary()  # by run id
_sessions: WeakKeyDictionary[Any, str] = WeakKeyDictionary()  # by Context


def session_of(run: str | None) -> str | None:
    """The session of an earlier run with the same `Context`; None where there is none."""
    context = _contexts.get(run or "")
    return None if context is None else _sessions.get(context)


def remember(run: str | None, session: str | None) -> None:
    """A run's session is that of all later runs with its `Context`."""
    context = _contexts.get(run or "")
    if context is not None and session is not None:
        _sessions[context] = session


@quiet
def _begins(handler: Any) -> None:
    _contexts[handler.run_id] = handler.ctx


def follow() -> None:
    """From now on `Workflow.run` tells which `Context` a run has.

    # INVARIANT: it takes, returns and raises what it did before.
    """
    run = Workflow.run
    if getattr(run, "of_kvpolicy", False):
        return

    @functools.wraps(run)
    def followed(self: Any, *args: Any, **named: Any) -> Any:
        handler = run(self, *args, **named)
        _begins(handler)
        return handler

    followed.of_kvpolicy = True  # type: ignore[attr-defined]
    Workflow.run = followed  # type: ignore[method-assign]
