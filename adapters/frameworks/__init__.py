"""Frameworks of agents: one module a framework, each an extra of its name.

Every module has `watch`, which gives what the framework's own run takes (a callback, hooks, a capability), and, where
the framework has graphs, `graph`, the workflow as the JSON document of `kvp graph`. What they see goes to a
`kvpolicy.Service`; what their LLM clients say of themselves comes through `kvpolicy.annotate`.

# INVARIANT: whatever breaks in here, or has another shape than the tested versions have, the application goes on.
"""
