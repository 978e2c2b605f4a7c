"""How a replica uses a shared store. Made from a configuration, read by `redis` and `round`."""

from __future__ import annotations

from dataclasses import dataclass, field

from kvpolicy.faults import InputFault
from kvpolicy.store.contract import BUDGET_S
from kvpolicy.store.log import KEPT


@dataclass(frozen=True, slots=True)
class Settings:
    """How the server is used; prefix, shards and secret are the same for all replicas.

    budget: seconds that a call on a request's way waits. patience: the same for versions and documents, which no
    request waits for. timeout: of one answer, after which the connection is given up. poll: between looks for what
    others said. kept: records of a shard that stay. replica: this process's name, None: one is made. secret: the key
    of the salts (at least 16 bytes); without it one is minted and kept on the server.
    """

    prefix: str = "kvp"
    shards: int = 1
    budget: float = BUDGET_S
    patience: float = 1.0
    timeout: float = 0.25
    poll: float = 0.010
    kept: int = KEPT
    replica: str | None = None
    secret: bytes | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for name in ("budget", "patience", "timeout", "poll"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 < value <= 60.0:
                raise InputFault(f"{name} of a store is a number of seconds above 0, at most 60, not {value!r}")
        if self.kept < 1:
            raise InputFault(f"a store keeps at least one record, not {self.kept}")
        if self.secret is not None and len(self.secret) < 16:
            raise InputFault("the secret of a store has at least 16 bytes")
