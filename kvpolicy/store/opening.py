"""The store that a configuration asks for; redis-py is loaded only where there is a Redis."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kvpolicy.store.memory import MemoryStore
from kvpolicy.store.settings import Settings

if TYPE_CHECKING:
    from kvpolicy.store.redis import RedisStore

DEFAULTS = Settings()


def open_store(
    redis: str | None = None, settings: Settings = DEFAULTS, folder: str | os.PathLike[str] | None = None
) -> MemoryStore | RedisStore:
    """The store at this address of a Redis (see `wire.connect`); without one, the in-process store.

    folder: where what must last is also written, one a process. Raises InputFault for an address, settings or a folder
    that cannot be used; a server that cannot be reached is no fault.
    """
    if redis is None:
        return MemoryStore(folder, keep=settings.kept, secret=settings.secret)
    from kvpolicy.store.redis import RedisStore

    return RedisStore(redis, settings, folder)
