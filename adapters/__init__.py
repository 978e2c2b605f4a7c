"""The adapter shelf: one module an engine. Adapters import kvpolicy, never the reverse; entry points load them."""
