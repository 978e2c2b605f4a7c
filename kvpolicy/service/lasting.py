"""What outlives this process, and is the same in all replicas: policy versions, workflows, learned times.

Kept in the store (docs/store.md): files in a folder, or Redis. At the start the store's version of a policy is in force
unless the files on disk are others than those that were last read: then the files are newer, and are published. From
then on whatever brings a version about here is published, and what others publish is taken up by its serial.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from kvpolicy.faults import KvpError
from kvpolicy.language.load import load_edited
from kvpolicy.language.reading import identity_of
from kvpolicy.policy.checked import examined
from kvpolicy.policy.policy import Policy
from kvpolicy.service.policies import Policies, Version
from kvpolicy.store.awaited import AwaitedStore
from kvpolicy.store.learned import KIND as LEARNED
from kvpolicy.store.learned import take_best
from kvpolicy.workflow.learned import Learned

READ = "policy_read"
OURS = "kvpolicy"  # the tenant of documents that belong to none
MAIN = "//main"  # beside a version's files: the name of the one that uses the others
LOOK_S = 0.5
KEEP_S = 30.0

log = logging.getLogger("kvpolicy.service")


class LastingPolicies:
    """counts: `published taken refused`."""

    def __init__(self, store: AwaitedStore, policies: Policies) -> None:
        self._store, self._policies = store, policies
        self._serials: dict[str, int] = {}
        self._agreed: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.counts: Counter[str] = Counter()

    async def start(self) -> None:
        """Agree with the store."""
        await self._store.settle()
        self._policies.published = self._published
        await self.agree()

    async def agree(self) -> None:
        """Likewise, about policies that came since then."""
        new = [name for name in self._policies.names if name not in self._agreed]
        documents = await self._store.kept(READ, OURS) if new else ()
        for name in new:
            kept = self._store.store.policy(name)
            read = self._policies.read_digest(name)
            remembered = next((d.body.get("digest") for d in documents if d.body.get("policy") == name), None)
            if kept is not None and remembered == read:
                self._take(name, kept.serial, kept.files)
            else:
                await self._publish(self._policies.current(name), 0 if kept is None else kept.serial)
            self._agreed.add(name)

    def look(self) -> None:
        """Take up what others published. Never waits."""
        for name in self._agreed:
            kept = self._store.store.policy(name)
            if kept is not None and kept.serial > self._serials.get(name, 0):
                self._take(name, kept.serial, kept.files)

    async def run(self) -> None:
        """Look again and again."""
        while True:
            await asyncio.sleep(LOOK_S)
            with suppress(Exception):
                self.look()

    async def close(self) -> None:
        """Wait until what was put in force here is published: whoever put it was told that it is."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _take(self, name: str, serial: int, files: Mapping[str, str]) -> None:
        self._serials[name] = serial
        try:
            self._policies.put(name, policy_of(files), "replica")
            self.counts["taken"] += 1
        except KvpError as fault:
            self.counts["refused"] += 1
            log.warning("policies: a version of %s that was published cannot be in force: %s", name, fault)

    def _published(self, version: Version) -> None:
        task = asyncio.get_running_loop().create_task(self._publish(version))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _publish(self, version: Version, expect: int | None = None) -> None:
        """expect: the serial that is to be in force now; what another replica put there meanwhile is taken instead."""
        kept = self._store.store.policy(version.name)
        files = files_of(version)
        if kept is None or dict(kept.files) != files:
            told = await self._store.publish(version.name, files, expect)
            if told.accepted and told.version is not None:
                self._serials[version.name] = told.version.serial
                self.counts["published"] += 1
            elif told.version is not None:
                self._take(version.name, told.version.serial, told.version.files)
        read = {"policy": version.name, "digest": self._policies.read_digest(version.name)}
        await self._store.keep(READ, OURS, version.name, read)


def files_of(version: Version) -> dict[str, str]:
    """A version as it is published."""
    texts = version.texts()
    return {**texts, MAIN: list(texts)[-1]}


def policy_of(files: Mapping[str, str]) -> Policy:
    """The policy of published files. Raises PolicyFault for one with errors."""
    main = Path(files[MAIN])
    texts = {identity_of(Path(name)): text for name, text in files.items() if name != MAIN}
    return examined(load_edited([main], texts)).policy()


class LastingTimes:
    """What was learned of each tenant's pauses. source: this replica's name."""

    def __init__(self, store: AwaitedStore, learned: Learned, source: str) -> None:
        self._store, self._learned, self._source = store, learned, source
        self._begun: set[str] = set()

    async def begin(self, tenant: str) -> None:
        """Where others, or this process before its restart, left off. Once a tenant."""
        if tenant in self._begun:
            return
        self._begun.add(tenant)
        take_best(await self._store.kept(LEARNED, tenant), self._learned, tenant)

    async def keep(self) -> None:
        """Write what is known now."""
        for tenant in self._learned.tenants():
            body = self._learned.export(tenant)
            await self._store.keep(LEARNED, tenant, self._source, body)

    async def run(self, tenants: Callable[[], tuple[str, ...]]) -> None:
        """Again and again. tenants: those whose times may be wanted."""
        while True:
            for tenant in tenants():
                with suppress(Exception):
                    await self.begin(tenant)
            await asyncio.sleep(KEEP_S)
            with suppress(Exception):
                await self.keep()
