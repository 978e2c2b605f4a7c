"""Which model a result was made with: a digest of the files that decide what the modelled engine does.

The model was compared with vLLM's scheduler in that state. docs/closed-loop.md has the digest, and a test fails where
the files have changed since: then the comparison is to be made again before any result is.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

FILES = ("continuum.py", "demand.py", "engine.py", "links.py", "loop.py", "models.py", "order.py", "task.py")


def digest() -> str:
    """The first 16 hex digits of the SHA-256 over the files, in their order."""
    found = hashlib.sha256()
    for name in FILES:
        found.update(name.encode() + b"\0" + (Path(__file__).parent / name).read_bytes() + b"\0")
    return found.hexdigest()[:16]
