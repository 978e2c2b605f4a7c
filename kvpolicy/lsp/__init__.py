"""The language server: `.kvp` files in any editor that speaks the Language Server Protocol.

`server` reads messages; the other modules answer them from texts alone, and know nothing of the protocol's transport.
"""
