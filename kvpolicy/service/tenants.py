"""Who asks: a request's key or token becomes a tenant, and nothing else does.

Read by `edge` for every request. Keys are known by their SHA-256 alone; tokens are read by a kept
library (PyJWT, extra `jwt`). A client's headers, body and identifiers never decide it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from kvpolicy.faults import InputFault, install
from kvpolicy.service.config import Caps, Config, Jwt, Mode

SOLE = "default"  # the tenant where no keys are asked
LONGEST_NAME = 256


@dataclass(frozen=True, slots=True)
class Tenant:
    """Who asks. policy, mode: what is in force for it where the configuration says so."""

    name: str
    plan: str | None = None
    policy: str | None = None
    mode: Mode | None = None
    caps: Caps = field(default_factory=Caps)


class Tenants:
    """All tenants of a configuration. Raises InputFault for what cannot be."""

    def __init__(self, config: Config) -> None:
        self._open = Tenant(SOLE) if config.open else None
        self._by_key: dict[str, Tenant] = {}
        self._by_name: dict[str, Tenant] = {}
        for section in config.tenant:
            tenant = Tenant(section.name, section.plan, section.policy, section.mode, section.caps)
            if section.name in self._by_name:
                raise InputFault(f"tenant {section.name!r} is there twice")
            self._by_name[section.name] = tenant
            for key in section.keys:
                if key in self._by_key:
                    raise InputFault(f"a key of tenant {section.name!r} is that of {self._by_key[key].name!r}, too")
                self._by_key[key] = tenant
        self._tokens = None if config.jwt is None else _Tokens(config.jwt)

    def become(self, other: Tenants) -> None:
        """Those of another configuration, from the next request on."""
        self._open, self._by_key, self._by_name = other._open, other._by_key, other._by_name
        self._tokens = other._tokens

    @property
    def names(self) -> tuple[str, ...]:
        """The configured ones, or the sole one."""
        return tuple(self._by_name) or (SOLE,)

    def of(self, headers: Mapping[str, str]) -> Tenant | None:
        """The tenant of a request by its `authorization` (Bearer) or `x-api-key`; None: it is nobody's."""
        if self._open is not None:
            return self._open
        secret = headers.get("x-api-key") or _bearer(headers.get("authorization", ""))
        if not secret:
            return None
        # Looked up by digest: how long that takes says something of digests, and nobody can choose those.
        tenant = self._by_key.get(hash_key(secret))
        if tenant is not None or self._tokens is None:
            return tenant
        named = self._tokens.tenant_of(secret)
        return None if named is None else self._by_name.get(named.name, named)


class _Tokens:
    """Signed tokens."""

    def __init__(self, settings: Jwt) -> None:
        try:
            import jwt  # type: ignore[import-not-found,unused-ignore]
        except ImportError:
            raise InputFault(f"jwt: needs PyJWT: {install('jwt')}") from None
        self._jwt: Any = jwt
        self._settings = settings
        try:
            self._key = Path(settings.key_file).read_text(encoding="utf-8")
        except OSError as fault:
            raise InputFault(f"jwt.key_file: {settings.key_file}: {fault.strerror}") from None
        except UnicodeDecodeError:
            mend = "a public key in PEM, or a secret in UTF-8, is needed"
            raise InputFault(f"jwt.key_file: {settings.key_file}: it is no text; {mend}") from None
        if "none" in (name.lower() for name in settings.algorithms):
            raise InputFault("jwt.algorithms: 'none' would let anybody in")
        # INVARIANT: a key that cannot be right is never in force: a file may be read while it is being written.
        if not self._key or not any(map(self._is_key_of, settings.algorithms)):
            named = " or ".join(settings.algorithms)
            raise InputFault(f"jwt.key_file: {settings.key_file}: it holds no key for {named}")

    def _is_key_of(self, algorithm: str) -> bool:
        try:
            self._jwt.get_algorithm_by_name(algorithm).prepare_key(self._key)
        except (self._jwt.PyJWTError, ValueError, TypeError, NotImplementedError):
            return False
        return True

    def tenant_of(self, token: str) -> Tenant | None:
        """The tenant a token names, with its plan, once its signature, times, audience and issuer are found right."""
        told = self._settings
        try:
            claims = self._jwt.decode(
                token,
                self._key,
                algorithms=list(told.algorithms),
                audience=told.audience,
                issuer=told.issuer,
                options={"require": ["exp"], "verify_aud": told.audience is not None},
            )
        except (self._jwt.PyJWTError, ValueError, TypeError):
            return None
        name, plan = claims.get(told.claim), claims.get(told.plan_claim or "")
        if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME:
            return None
        return Tenant(name, plan if isinstance(plan, str) else None)


def hash_key(key: str) -> str:
    """The form in which a key stands in the configuration."""
    return sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def _bearer(header: str) -> str:
    scheme, _, secret = header.partition(" ")
    return secret.strip() if scheme.lower() == "bearer" else ""
