"""The policies in force: which one a request is planned by, in which version, and whether it is acted on.

Loaded by `assembly`, replaced as a whole or not at all (`reloading` by files and signal, `admin` by call, `replicas` by
what another replica published); every request keeps the version it was planned by. A client's wish can lower the mode
and choose among offered policies, never raise or bring one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b, sha256
from typing import Protocol

from kvpolicy.faults import InputFault
from kvpolicy.policy.checked import open_policy
from kvpolicy.policy.diff.diff import difference
from kvpolicy.policy.policy import Policy
from kvpolicy.request import Owner
from kvpolicy.service.config import Mode, PolicySection
from kvpolicy.service.tenants import Tenant

MOST_VERSIONS = 32
SOURCES = ("start", "file", "signal", "api", "rollback", "replica")
OFF: Mode = "off"
SHADOW: Mode = "shadow"
ENFORCE: Mode = "enforce"
_RANK: Mapping[str, int] = {OFF: 0, SHADOW: 1, ENFORCE: 2}


@dataclass(frozen=True, slots=True)
class Version:
    """A compiled policy. number: counts up with every change; digest: of its files' texts; source: what brought it,
    one of SOURCES."""

    name: str
    number: int
    digest: str
    policy: Policy
    source: str = "start"

    @property
    def shown(self) -> str:
        """The name that clients see: the one that its text begins with, never the operator's file."""
        return self.policy.name

    def texts(self) -> dict[str, str]:
        """Its files' texts by name, used ones first."""
        return {member.file.name: member.file.text for member in self.policy.files.members}


@dataclass(frozen=True, slots=True)
class InForce:
    """What a request is planned by, and how: `off`, `shadow` (planned and counted, not sent) or `enforce`."""

    version: Version
    mode: Mode


class Watch(Protocol):
    """Whoever has to know of a policy that comes into force: the run state, for its intervals."""

    def __call__(self, policy: Policy) -> None: ...


class Policies:
    """All versions by name. Raises PolicyFault or InputFault for what cannot be loaded.

    counts: `reload_RESULT` and `changed_SOURCE`. fault: why what is on disk is not in force, None where it is.
    published: told of every change that began here, so that other replicas hear of it. wanted: names that may be in
    force now; one that was wanted once stays for requests on their way.
    """

    def __init__(self, section: PolicySection, tenants: Mapping[str, str], came: Watch) -> None:
        self._section = section
        self._came = came
        self._versions: dict[str, list[Version]] = {}
        self._canary = tuple(sorted(section.canary.items()))
        if sum(part for _, part in self._canary) > 1:
            raise InputFault("policy.canary: the parts of owners add up to more than 1")
        self._own = frozenset((section.name, *section.models.values(), *section.offered, *section.canary))
        self.wanted: tuple[str, ...] = self._with(tenants)
        self._read: dict[str, str] = {}  # digests as last read from files, by name
        self.counts: Counter[str] = Counter()
        self.fault: str | None = None
        self.published: Callable[[Version], None] = _nobody
        self.want(tenants, self.missing(tenants))

    def _with(self, tenants: Mapping[str, str]) -> tuple[str, ...]:
        return tuple(sorted(self._own | set(tenants.values())))

    def missing(self, tenants: Mapping[str, str]) -> dict[str, Policy]:
        """The policies that would be wanted with these, by tenant, and are not here: read, and not in force yet. May
        run aside. Raises PolicyFault or InputFault for the first that is wrong."""
        return {name: open_policy([name]) for name in self._with(tenants) if name not in self._versions}

    def want(self, tenants: Mapping[str, str], read: Mapping[str, Policy]) -> None:
        """Tenants have these policies from now on. read: those that were missing."""
        for name, policy in read.items():
            if name not in self._versions:
                self._read[name] = self.put(name, policy).digest
        self.wanted = self._with(tenants)

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
        return self.put(name, known[0].policy, "rollback")

    def compare(self, name: str, before: object, after: object) -> dict[str, object]:
        """What two versions of a policy decide differently. Raises InputFault for a version that is not there."""
        found = []
        for number in (before, after):
            known = [version for version in self._versions[name] if version.number == number]
            if not known:
                numbers = ", ".join(str(version.number) for version in self._versions[name])
                raise InputFault(f"diff: {name} has the versions {numbers}, not {number!r}")
            found.append(known[0].policy)
        told = difference(*found)
        return {
            "same": told.same,
            "changes": [change.as_json() for change in told.changes],
            "others": list(told.others),
            "unsettled": list(told.unsettled),
        }

    def put(self, name: str, policy: Policy, source: str = "start") -> Version:
        """Bring a policy into force under a name. The same text again is the same version."""
        digest = digest_of(policy)
        versions = self._versions.get(name, [])
        if versions and versions[-1].digest == digest:
            return versions[-1]
        made = Version(name, versions[-1].number + 1 if versions else 1, digest, policy, source)
        self._came(policy)  # before anything is noted: where it raises, what was in force is, whole
        self._versions[name] = [*versions, made][-MOST_VERSIONS:]
        self.counts[f"changed_{source}"] += 1
        if source not in ("start", "replica"):
            self.published(made)
        return made

    def take(self, read: Mapping[str, Policy], source: str) -> list[Version]:
        """All that was read from files, at once. One whose files did not change since they were last read keeps what
        is in force now, be it what a call brought."""
        changed = []
        for name, policy in read.items():
            digest = digest_of(policy)
            if self._read.get(name) != digest:
                before = self._versions[name][-1]
                made = self.put(name, policy, source)
                self._read[name] = digest
                changed += [made] if made is not before else []
        self.fault = None
        self.counts["reload_good"] += 1
        return changed

    def read_digest(self, name: str) -> str | None:
        """Of a policy's files as they were last read."""
        return self._read.get(name)

    def failed(self, fault: str) -> None:
        """What is on disk cannot be in force; what was, stays."""
        self.fault = fault
        self.counts["reload_bad"] += 1

    def choose(self, tenant: Tenant, model: str | None, owner: Owner, wish: str | None, mode: str | None) -> InForce:
        """What a request of `owner` is planned by."""
        section = self._section
        name = tenant.policy or section.models.get(model or "", section.name)
        if tenant.policy is None and self._canary:
            place = _place(owner, "canary")
            for other, part in self._canary:
                place -= part
                if place < 0:
                    name = other
                    break
        if wish is not None:
            shown = (other for other in section.offered if self.current(other).shown == wish)
            name = wish if wish in section.offered else next(shown, name)
        allowed: Mode = tenant.mode or section.mode
        if mode is not None and _RANK.get(mode, 2) < _RANK[allowed]:
            allowed = mode  # type: ignore[assignment]
        if allowed == ENFORCE and section.share < 1 and _place(owner) >= section.share:
            allowed = SHADOW
        return InForce(self.current(name), allowed)


def digest_of(policy: Policy) -> str:
    """A policy's identity: the digests of its files together, wherever they lie."""
    told = sha256()
    for digest in sorted(policy.digests.values()):
        told.update(f"{digest}\0".encode())
    return told.hexdigest()


def _nobody(_: Version) -> None:
    """Nobody else has to hear."""


def _place(owner: Owner, of: str = "share") -> float:
    """Where an owner stands between 0 and 1: the same in every replica, so that a share is the same owners. of: two
    shares are drawn apart from each other."""
    name = f"{of}\0{owner.tenant}\0{owner.session}\0{owner.run}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(name, digest_size=8).digest(), "big") / 2**64
