"""Which key salts are made with: this process's own, the configured one, or the one that all replicas share.

Made by `assembly`. A key that only the store knows and cannot tell now (Redis was never there) gives every request a
salt of its own: isolation holds, hits are lost.
"""

from __future__ import annotations

from functools import partial

from kvpolicy.request import Owner
from kvpolicy.service.config import Config
from kvpolicy.service.isolation import Mint, mint
from kvpolicy.store.contract import Store


def minting(config: Config, store: Store, secret: bytes) -> Mint:
    """How salts are made under this configuration."""
    shared = config.store.redis is not None or config.store.file is not None
    if config.secret_file is not None or not shared:
        return partial(mint, secret)

    def shared_mint(owner: Owner, share: str) -> str | None:
        if share == "global":
            return None
        return mint(bytes.fromhex(store.salt(owner.tenant).text), owner, share)

    return shared_mint
