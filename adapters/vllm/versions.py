"""Which vLLM versions the adapter knows, and whether the one at hand is one of them.

On any other the adapter stays off and says so: the queue's interface and the scheduler's inside change without notice.
"""

from __future__ import annotations

from typing import Any

OFF_VARIABLE = "KVPOLICY_OFF"  # set: the adapter stays off, whatever the version
SUPPORTED = ("0.32.0", "0.33.0")  # the core tests run on each; 0.32.0 is served, too
RANGE = ">=0.32,<0.34"
_MINORS = tuple(tuple(map(int, version.split(".")[:2])) for version in SUPPORTED)

# What is called or read of vLLM. A build that lacks any of it is none that we know, whatever it is called.
_OF_THE_SCHEDULER = ("kv_cache_manager", "requests", "running", "_free_request_blocks", "reset_prefix_cache")
_OF_THE_POOL = (
    "blocks",
    "free_block_queue",
    "cached_block_hash_to_block",
    "enable_caching",
    "hash_block_size",
    "metrics_collector",
    "num_gpu_blocks",
    "get_new_blocks",
    "touch",
    "free_blocks",
    "evict_blocks",
)
_OF_THE_QUEUE = (
    "append",
    "append_n",
    "get_all_free_blocks",
    "iter_blocks_after",
    "popleft",
    "popleft_n",
    "prepend_n",
    "remove",
)


def version_here() -> str | None:
    """Of the vLLM in this process; None where it does not say."""
    try:
        from vllm.version import __version__

        return str(__version__)
    except Exception:
        return None


def unknown(version: str | None) -> str | None:
    """Why a version is not known, or None."""
    parts = (version or "").split("+")[0].split(".")
    try:
        minor = (int(parts[0]), int(parts[1]))
    except (IndexError, ValueError):
        return f"vLLM says version {version!r}, which is none; known are {', '.join(SUPPORTED)}"
    if minor not in _MINORS:
        return f"vLLM {version} is not known; known are {', '.join(SUPPORTED)}"
    return None


def strange(scheduler: Any) -> str | None:
    """What is missing of what the adapter uses, or None. The scheduler has to be built."""
    missing = [name for name in _OF_THE_SCHEDULER if not hasattr(scheduler, name)]
    pool = getattr(getattr(scheduler, "kv_cache_manager", None), "block_pool", None)
    missing += [f"block_pool.{name}" for name in _OF_THE_POOL if not hasattr(pool, name)]
    queue = getattr(pool, "free_block_queue", None)
    missing += [f"free_block_queue.{name}" for name in _OF_THE_QUEUE if not hasattr(queue, name)]
    added = {n for n in dir(type(queue)) if not n.startswith("_") and callable(getattr(queue, n))} - set(_OF_THE_QUEUE)
    if added and not missing:
        return f"its free-block queue has methods that are not known: {', '.join(sorted(added))}"
    return f"it lacks {', '.join(missing)}" if missing else None
