"""Cache salts: a keyed hash of the tenant's name and of how often its salt was renewed.

Who knows the key can tell a tenant's salt; the key comes from the configuration (`secret`) or is minted once and shared
by the store. Source of the construction: HMAC with SHA-256, RFC 2104.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping

from kvpolicy.store.contract import Salt, Version

BOARD = "#salts"  # the version whose "files" say how often each tenant's salt was renewed
KEY_BYTES = 32


def mint_key() -> bytes:
    """A new key."""
    return secrets.token_bytes(KEY_BYTES)


def mark(key: bytes | None, tenant: str) -> str:
    """A tenant's name as a keyed hash, so that the list of renewals names nobody."""
    return hmac.digest(key or b"kvpolicy", b"mark\0" + tenant.encode(errors="surrogatepass"), "sha256").hex()[:32]


def salt(key: bytes | None, tenant: str, renewals: Version | None) -> Salt:
    """The tenant's salt; without a key one that nobody ever gets again."""
    if key is None:
        return Salt(secrets.token_hex(32), lasting=False)
    times = "0" if renewals is None else renewals.files.get(mark(key, tenant), "0")
    text = b"salt\0" + times.encode() + b"\0" + tenant.encode(errors="surrogatepass")
    return Salt(hmac.digest(key, text, "sha256").hex(), lasting=True)


def renewed(key: bytes | None, tenant: str, renewals: Version | None) -> Mapping[str, str]:
    """The list of renewals with one more of this tenant."""
    files = {} if renewals is None else dict(renewals.files)
    name = mark(key, tenant)
    files[name] = str(int(files.get(name, "0")) + 1)
    return files
