"""The policies in force: which one a request is planned by, in which version, and whether it is acted on.

Loaded by `app`, replaced as a whole or not at all; every request keeps the version it was planned by. A client's wish
can lower the mode and choose among offered policies, never raise or bring one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b, sha256
from typing import Protocol

from kvpolicy.faults import InputFault
from kvpolicy.policy.checked import open_policy
from kvpolicy.policy.policy import Policy
from kvpolicy.request import Owner
from kvpolicy.service.config import Mode, PolicySection
from kvpolicy.service.tenants import Tenant

MOST_VERSIONS = 32
OFF: Mode = "off"
SHADOW: Mode = "shadow"
ENFORCE: Mode = "enforce"
_RANK: Mapping[str, int] = {OFF: 0, SHADOW: 1, ENFORCE: 2}


@dataclass(frozen=True, slots=True)
class Version:
    """A compiled policy. number: counts up with every change; digest: of its files' texts."""

    name: str
    number: int
    digest: str
    policy: Policy


@dataclass(frozen=True, slots=True)
class InForce:
    """What a request is planned by, and how: `off`, `shadow` (planned and counted, not sent) or `enforce`."""

    version: Version
    mode: Mode


class Watch(Protocol):
    """Whoever has to know of a policy that comes into force: the run state, for its intervals."""

    def __call__(self, policy: Policy) -> None: ...


class Policies:
    """All versions by name. Raises PolicyFault or InputFault for what cannot be loaded."""

    def __init__(self, section: PolicySection, tenants: Mapping[str, str], came: Watch) -> None:
        self._section = section
        self._came = came
        self._versions: dict[str, list[Version]] = {}
        names = {section.name, *section.models.values(), *section.offered, *tenants.values()}
        for name in sorted(names):
            self.put(name, open_policy([name]))

    @property
    def names(self) -> tuple[str, ...]:
        """Of every policy that may be in force."""
        return tuple(self._versions)

    def current(self, name: str) -> Version:
        """The version of a policy that new requests are planned by."""
        return self._versions[name][-1]

    def versions(self, name: str) -> tuple[Version, ...]:
        """All that are remembered, the one in force last."""
        return tuple(self._versions[name])

    def roll_back(self, name: str, number: object) -> Version:
        """Bring an earlier version into force again, as a new one. Raises InputFault for one that is not there."""
        known = [version for version in self._versions[name] if version.number == number]
        if not known:
            numbers = ", ".join(str(version.number) for version in self._versions[name])
            raise InputFault(f"rollback: {name} has the versions {numbers}, not {number!r}")
        return self.put(name, known[0].policy)

    def put(self, name: str, policy: Policy) -> Version:
        """Bring a policy into force under a name. The same text again is the same version."""
        digest = digest_of(policy)
        versions = self._versions.setdefault(name, [])
        if versions and versions[-1].digest == digest:
            return versions[-1]
        made = Version(name, versions[-1].number + 1 if versions else 1, digest, policy)
        self._came(policy)
        versions.append(made)
        del versions[:-MOST_VERSIONS]
        return made

    def choose(self, tenant: Tenant, model: str | None, owner: Owner, wish: str | None, mode: str | None) -> InForce:
        """What a request of `owner` is planned by."""
        section = self._section
        name = tenant.policy or section.models.get(model or "", section.name)
        if wish is not None and wish in section.offered:
            name = wish
        allowed: Mode = tenant.mode or section.mode
        if mode is not None and _RANK.get(mode, 2) < _RANK[allowed]:
            allowed = mode  # type: ignore[assignment]
        if allowed == ENFORCE and section.share < 1 and _place(owner) >= section.share:
            allowed = SHADOW
        return InForce(self.current(name), allowed)


def digest_of(policy: Policy) -> str:
    """A policy's identity: the digests of its files together."""
    told = sha256()
    for name, digest in sorted(policy.digests.items()):
        told.update(f"{name}\0{digest}\0".encode())
    return told.hexdigest()


def _place(owner: Owner) -> float:
    """Where an owner stands between 0 and 1: the same in every replica, so that a share is the same owners."""
    name = f"{owner.tenant}\0{owner.session}\0{owner.run}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(name, digest_size=8).digest(), "big") / 2**64
