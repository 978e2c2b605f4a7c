"""A warning, once: what fails on our side is said in the log `kvpolicy`, and never raised into an application."""

from __future__ import annotations

import logging
from collections import Counter

LOG = logging.getLogger("kvpolicy")
counts: Counter[str] = Counter()  # how often each was met, in this process
_MOST = 1000  # texts that are remembered


def warn_once(key: str, text: str) -> None:
    """Log `text` the first time that `key` is met; count it each time."""
    if key not in counts and len(counts) >= _MOST:
        key = "other"
    counts[key] += 1
    if counts[key] == 1:
        LOG.warning("kvpolicy: %s (said once)", text)
