"""The overrides of a vLLM scheduler: its own methods, and the keeper around them.

Where the keeper could not be attached (an unknown version, no prefix caching, switched off) they do nothing besides.
Needs no import of vLLM: `scheduler` and `plugin` put the class before one of vLLM's.
"""

from __future__ import annotations

from typing import Any

from kvpolicy.adapters.vllm.attach import attach
from kvpolicy.adapters.vllm.keeper import Keeper


class Steered:
    """The overrides, to stand before a scheduler class of vLLM."""

    _kvp: Keeper | None = None

    def add_request(self, request: Any) -> None:
        super().add_request(request)  # type: ignore[misc]
        if self._kvp is not None:
            self._kvp.came(request)

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        keeper = self._kvp
        if keeper is None:
            return super().schedule(*args, **kwargs)  # type: ignore[misc]
        keeper.before_step()
        output = super().schedule(*args, **kwargs)  # type: ignore[misc]
        keeper.after_schedule(output)
        return output

    def _free_request_blocks(self, request: Any) -> Any:
        if self._kvp is not None:
            self._kvp.leaving(request)
        return super()._free_request_blocks(request)  # type: ignore[misc]

    def has_requests(self) -> bool:
        """Asked when an idle engine wakes: messages are taken up at once, in the engine's own thread. Asked of a busy
        one, too, several times a step, which takes them up itself."""
        if super().has_requests():  # type: ignore[misc]
            return True
        if self._kvp is not None:
            self._kvp.drain()
        return bool(super().has_requests())  # type: ignore[misc]

    def reset_prefix_cache(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().reset_prefix_cache(*args, **kwargs)  # type: ignore[misc]
        finally:
            if self._kvp is not None:
                self._kvp.after_reset()

    def shutdown(self) -> None:
        keeper, self._kvp = self._kvp, None
        if keeper is not None and keeper.channel is not None:
            keeper.channel.close()
        super().shutdown()  # type: ignore[misc]


def steered(scheduler: type, hook: str) -> type:
    """A subclass of a scheduler class of vLLM with the overrides; the class itself where it has them."""
    if issubclass(scheduler, Steered):
        return scheduler

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        scheduler.__init__(self, *args, **kwargs)
        self._kvp = attach(self, hook)

    members = {"__init__": __init__, "__module__": __name__, "__doc__": scheduler.__doc__}
    return type(f"Kvp{scheduler.__name__}", (Steered, scheduler), members)
