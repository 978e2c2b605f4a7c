"""Under which names a run is known: the tenant with the run's id, or with the session where there is none."""

from __future__ import annotations

from collections.abc import Mapping

from kvpolicy.request import Owner

RunKey = tuple[str | None, str | None]


def keys_of(owner: Owner) -> list[RunKey]:
    """Under which its run may be known: events need not state the tenant, or more than that."""
    names = dict.fromkeys((owner.run, owner.session, None))
    return [(tenant, name) for tenant in (owner.tenant, None) for name in names]


def key_of(owner: Owner) -> RunKey:
    """Under which an owner's run is kept."""
    return owner.tenant, owner.run if owner.run is not None else owner.session


def key_stated(attributes: Mapping[str, object]) -> RunKey:
    """Of the run that an event means which reached no owner."""
    tenant, run, session = (text_of(attributes.get(field)) for field in ("tenant", "run", "session"))
    return tenant, run if run is not None else session


def text_of(value: object) -> str | None:
    """A name, None for what is none."""
    return value if isinstance(value, str) else None
