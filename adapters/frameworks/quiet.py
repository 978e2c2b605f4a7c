"""Hooks that an application never notices, and versions that they were tested with.

Used by the framework modules around everything that a framework calls.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypeVar, cast

from kvpolicy.client.once import warn_once

Hook = TypeVar("Hook", bound=Callable[..., Any])


def quiet(hook: Hook) -> Hook:
    """The hook, plain or async, which returns None where it fails, and says so once."""
    name = f"{hook.__module__.rpartition('.')[2]}.{hook.__name__}"

    if inspect.iscoroutinefunction(hook):

        @functools.wraps(hook)
        async def awaited(*args: Any, **named: Any) -> Any:
            try:
                return await hook(*args, **named)
            except Exception as fault:
                warn_once(name, f"{name} failed, its events are missing: {fault!r}")
                return None

        return cast(Hook, awaited)

    @functools.wraps(hook)
    def called(*args: Any, **named: Any) -> Any:
        try:
            return hook(*args, **named)
        except Exception as fault:
            warn_once(name, f"{name} failed, its events are missing: {fault!r}")
            return None

    return cast(Hook, called)


def tested(package: str, lowest: tuple[int, int], below: tuple[int, int]) -> bool:
    """Whether the installed version is one that this adapter was tested with (major, minor); warns once where not."""
    try:
        found = version(package)
        major, minor = (int("".join(c for c in part if c.isdigit()) or 0) for part in (found + ".0").split(".")[:2])
    except (PackageNotFoundError, ValueError):
        warn_once(f"version {package}", f"{package} is not installed, or has no version")
        return False
    if lowest <= (major, minor) < below:
        return True
    said = f"{lowest[0]}.{lowest[1]} to below {below[0]}.{below[1]}"
    warn_once(f"version {package}", f"{package} {found} is not among the tested versions ({said}): it may go unseen")
    return False
