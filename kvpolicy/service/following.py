"""Tenants, their keys and caps, the key of tokens and the operator's keys follow the configuration's file.

Beside `reloading`, which does so for policies: by itself once the file is still, or at once by signal or call, all or
nothing. Whoever asks is looked up with each request, so a key that is gone opens nothing from then on, and what runs
goes on. Everything else in the file waits for the next start, and that is said.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvpolicy.faults import InputFault, KvpError
from kvpolicy.policy.policy import Policy
from kvpolicy.service.app import Gateway
from kvpolicy.service.config import Config
from kvpolicy.service.policies import Policies
from kvpolicy.service.reloading import is_packaged
from kvpolicy.service.stillness import LOOK_S, Stillness
from kvpolicy.service.tenants import Tenants

FOLLOWED = ("tenant", "jwt", "admin")
log = logging.getLogger("kvpolicy.service")


@dataclass(frozen=True, slots=True)
class Source:
    """Where the configuration comes from. file: its path; read: the whole of it anew, with what options say instead."""

    file: Path
    read: Callable[[], Config]


@dataclass(frozen=True, slots=True)
class _Read:
    """What was read and is not in force yet."""

    config: Config
    tenants: Tenants
    policies: dict[str, Policy]


class Following:
    """source: None where there is no file. brought: called when policies are wanted that were not before. clock:
    seconds, only differences count. counts: `good bad`. fault: why what the file says is not in force. waiting: its
    sections that are others than at the start, and are not followed."""

    def __init__(
        self,
        source: Source | None,
        gateway: Gateway,
        policies: Policies,
        brought: Callable[[], Awaitable[None]],
        clock: Callable[[], float],
    ) -> None:
        # What is no file of its own (a pipe) can be read once.
        self._source = source if source is not None and source.file.is_file() else None
        self._gateway, self._policies, self._brought, self._clock = gateway, policies, brought, clock
        self.counts: Counter[str] = Counter(good=0, bad=0)
        self.fault: str | None = None
        self.waiting: tuple[str, ...] = ()
        self._told = gateway.config  # as it was last read, right or wrong
        self._unkept: str | None = None  # why what came with it is not in the store
        self._still = Stillness(self._paths, lambda: self.fault is not None, clock)
        self._still.settle({})  # it may have changed since it was read for the start
        self._turn = asyncio.Lock()

    def due(self, now: float) -> bool:
        """Whether a file changed and has been still since then. Looks at them."""
        return self._source is not None and self._still.due(now)

    async def reload(self) -> None:
        """Read the file, where there is one, and bring it into force, or nothing of it. Raises InputFault or
        PolicyFault."""
        if self._source is None:
            return
        async with self._turn:
            before = self._still.look(folders=True)
            try:
                self._take(await asyncio.to_thread(self._read, self._source))
                if not await self._bring():
                    before = {}
            except KvpError as fault:
                self._failed(str(fault))
                raise
            except OSError as fault:
                said = f"{fault.filename or self._source.file}: {fault.strerror}"
                self._failed(said)
                raise InputFault(said) from None
            except Exception as fault:
                said = f"{self._source.file}: {type(fault).__name__}: {fault}"
                self._failed(said, once=True)
                before = {}  # no fault of the file, so it is tried again though it does not change
                raise InputFault(said) from fault
            finally:
                self._still.settle(before)

    async def run(self) -> None:
        """Look again and again."""
        while self._source is not None:
            await asyncio.sleep(LOOK_S)
            with suppress(Exception):
                if await asyncio.to_thread(self.due, self._clock()):
                    await self.signalled()

    async def signalled(self) -> None:
        """A signal, or the file, asked for it."""
        try:
            await self.reload()
        except KvpError:
            return  # said and counted

    def as_json(self) -> dict[str, Any]:
        """Who may ask, how many keys each has, and what of the file is not in force; no key."""
        rows = [
            {"name": each.name, "keys": len(each.keys), **each.model_dump(include={"plan", "policy", "mode", "caps"})}
            for each in self._gateway.config.tenant
        ]
        file = None if self._source is None else str(self._source.file)
        return {"file": file, "tenants": rows, "fault": self.fault, "waiting": list(self.waiting)}

    def _paths(self) -> set[Path]:
        """The file, the key of tokens, and, while something is wrong, whatever may have to come."""
        paths = set() if self._source is None else {self._source.file}
        if self._told.jwt is not None:
            paths.add(Path(self._told.jwt.key_file))
        if self.fault is not None:
            paths |= {Path(name) for name in wanted(self._told).values() if not is_packaged(name)}
        return paths

    def _read(self, source: Source) -> _Read:
        """Everything that may be wrong, aside."""
        config = self._told = source.read()
        if config.open != self._gateway.config.open:
            said = "anybody is let in without tenants and tokens" if config.open else "keys are asked, and were not"
            raise InputFault(f"{source.file}: {said}: that takes a new start of kvp serve")
        if config.admin.key is None and self._gateway.config.admin.key is not None:
            said = "admin.key is gone, and every caller on loopback would be the operator"
            raise InputFault(f"{source.file}: {said}: that takes a new start of kvp serve")
        return _Read(config, Tenants(config), self._policies.missing(wanted(config)))

    def _take(self, read: _Read) -> None:
        config, gateway = read.config, self._gateway
        started = gateway.config
        self._policies.want(wanted(config), read.policies)
        gateway.tenants.become(read.tenants)
        gateway.config = started.model_copy(update={name: getattr(config, name) for name in FOLLOWED})
        if self.fault is not None:
            log.warning("configuration: what is on disk is taken up again")
        self.fault = None
        self.counts["good"] += 1
        if gateway.config != started:
            log.info("configuration: tenants and keys are those of %d tenants now", len(config.tenant))
        others = (name for name in Config.model_fields if name not in FOLLOWED)
        waiting = tuple(name for name in others if getattr(config, name) != getattr(started, name))
        if waiting and waiting != self.waiting:
            log.warning("configuration: what changed of %s waits for the next start", ", ".join(waiting))
        self.waiting = waiting

    async def _bring(self) -> bool:
        """Whether policies that came are followed and kept. What is in force is so where the store cannot: a key that
        is gone opens nothing then either."""
        said = None
        try:
            await self._brought()
        except Exception as fault:
            said = f"{type(fault).__name__}: {fault}"
            if said != self._unkept:
                log.warning("configuration: in force, but its policies are not all followed and kept yet: %s", said)
        self._unkept = said
        return said is None

    def _failed(self, fault: str, *, once: bool = False) -> None:
        """What the file says cannot be in force; what was, stays. once: the same again is not said again."""
        said, self.fault = self.fault, fault
        self.counts["bad"] += 1
        if once and said == fault:
            return
        log.warning("configuration: what is on disk is not taken up: %s", fault)


def wanted(config: Config) -> dict[str, str]:
    """The policies that tenants have of their own, by tenant."""
    return {section.name: section.policy for section in config.tenant if section.policy is not None}
