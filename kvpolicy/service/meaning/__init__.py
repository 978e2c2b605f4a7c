"""What a request means: whose it is, which messages are what, and what has happened, said or seen.

    annotations   what the client says: `x-kvp-…` headers, the body field `kvp`, session identities already in use
    dialects      what the body itself shows: roles, tools, calls, results, documents, cache marks
    sessions      which owner's next request this is, also without any identifier
    offsets       where messages lie in the engine's tokens

Nothing here refuses a request: what cannot be read is ignored, counted and answered by a code.
"""
