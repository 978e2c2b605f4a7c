"""Salts: who may hit whose blocks, minted from the authenticated tenant with a keyed hash, policies or not.

Set on every model request before anything else is decided, and not subject to failing open: where a salt cannot be
made, the request goes out under one of its own. Text of an alphabet that engines take.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path

from kvpolicy.faults import InputFault
from kvpolicy.request import Owner

SALT_FIELD = "cache_salt"
_SHORTEST_SECRET = 16  # bytes


def load_secret(path: str | None) -> bytes:
    """The key of salts and digests. None: one is made, so that a restart forgets all that was cached. Raises InputFault
    for a file that is too short to be a secret."""
    if path is None:
        return secrets.token_bytes(32)
    try:
        secret = Path(path).read_bytes().strip()
    except OSError as fault:
        raise InputFault(f"secret_file: {path}: {fault.strerror}") from None
    if len(secret) < _SHORTEST_SECRET:
        raise InputFault(f"secret_file: {path}: at least {_SHORTEST_SECRET} bytes are needed")
    return blake2b(secret, digest_size=32).digest()


def mint(secret: bytes, owner: Owner, share: str) -> str | None:
    """The salt of a request whose spans are shared as `share` says; None for `global`: everybody may hit it."""
    if share == "global":
        return None
    scope = [share, owner.tenant]
    if share == "run":
        scope.append(owner.run or owner.session or secrets.token_hex(8))
    elif share == "session":
        scope.append(owner.session or secrets.token_hex(8))
    told = blake2b(key=secret, digest_size=18)
    for part in scope:
        raw = part.encode("utf-8", "surrogatepass")
        told.update(len(raw).to_bytes(4, "big") + raw)
    return f"kvp-{told.hexdigest()}"


def unique() -> str:
    """A salt that nobody shares: what a request goes out under when its own cannot be made."""
    return f"kvp-{secrets.token_hex(18)}"


def hashed(secret: bytes, name: str | None) -> str | None:
    """An identifier as it stands in logs and traces: keyed, so that no one can look names up."""
    if name is None:
        return None
    return blake2b(name.encode("utf-8", "surrogatepass"), digest_size=10, key=secret[:32]).hexdigest()


def digest_key(secret: bytes, tenant: str) -> bytes:
    """The key of the digests of a tenant's prompts. # INVARIANT: no two tenants' digests meet, so that nothing that is
    remembered by a digest says to one what another has sent. It is no value of `hashed`: those are written to logs."""
    raw = tenant.encode("utf-8", "surrogatepass")
    return blake2b(raw, digest_size=32, key=secret[:32], person=b"kvp-digests").digest()


Mint = Callable[[Owner, str], str | None]
