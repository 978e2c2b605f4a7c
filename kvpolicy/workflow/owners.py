"""Which owners there are, and which of them an event addresses.

`transitions` keeps one `Life` an owner here. `Owners` indexes them by the fields an event can state, so that addressing
looks at the smallest set that agrees with one of them, not at every owner.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kvpolicy.request import Owner
from kvpolicy.workflow.events import Event
from kvpolicy.workflow.life import Life
from kvpolicy.workflow.phases import Call

_FIELDS = ("session", "run", "agent", "branch")  # indexed, and stated by an owner itself
_Key = tuple[str, str, object]
_NOBODY: Mapping[Life, None] = {}


class Owners:
    """All owners known, by owner and by field."""

    def __init__(self) -> None:
        self.lives: dict[Owner, Life] = {}
        self._index: dict[_Key, dict[Life, None]] = {}
        self._created = 0
        self._tenants: dict[str, int] = {}  # owners per tenant

    def get(self, owner: Owner) -> Life | None:
        """The life of `owner`, or None."""
        return self.lives.get(owner)

    def add(self, owner: Owner, at: float) -> Life:
        """A new owner."""
        life = self.lives[owner] = Life(owner, self._created, at)
        self._created += 1
        self._tenants[owner.tenant] = self._tenants.get(owner.tenant, 0) + 1
        for key in self._keys(life):
            self._index.setdefault(key, {})[life] = None
        return life

    def remove(self, life: Life) -> None:
        """Forget an owner."""
        if self.lives.pop(life.owner, None) is None:
            return
        self._tenants[life.owner.tenant] -= 1
        if not self._tenants[life.owner.tenant]:
            del self._tenants[life.owner.tenant]
        for key in self._keys(life):
            self._drop(key, life)

    def move(self, life: Life, node: str | None) -> None:
        """The owner is at another workflow node."""
        tenant = life.owner.tenant
        self._drop((tenant, "node", life.place()), life)
        life.node = node
        self._index.setdefault((tenant, "node", life.place()), {})[life] = None

    def adopt(self, life: Life, parent: str) -> None:
        """The owner's parent has become known by an event."""
        if life.parent is None:
            life.parent = parent
            self._index.setdefault((life.owner.tenant, "parent", parent), {})[life] = None

    def children(self, life: Life) -> Iterable[Life]:
        """Owners forked from this one."""
        owner = life.owner
        names = dict.fromkeys(n for n in (owner.branch or owner.session,) if n is not None)
        for name in names:
            for child in self._index.get((owner.tenant, "parent", name), ()):
                if child is not life and (child.owner.session == owner.session or child.owner.branch is None):
                    yield child

    def any_of_run(self, owner: Owner) -> bool:
        """Whether anybody of the owner's run is known."""
        return any(True for _ in self.of_run(owner))

    def of_run(self, owner: Owner) -> Iterable[Life]:
        """Everybody known of the owner's run; of its session, where it has none."""
        field, value = ("run", owner.run) if owner.run is not None else ("session", owner.session)
        return self._index.get((owner.tenant, field, value), ())

    def call_opened(self, life: Life, call: Call) -> None:
        """From now on events may name this call."""
        if call.id is not None:
            self._index.setdefault((life.owner.tenant, "call", call.id), {})[life] = None

    def call_closed(self, life: Life, call: Call) -> None:
        """Events that name this call find nobody any more."""
        if call.id is not None:
            self._drop((life.owner.tenant, "call", call.id), life)

    def addressed(self, event: Event) -> list[Life]:
        """Every owner that agrees with all the owner fields the event states, oldest first.

        Whoever passes on events of several tenants states the tenant from authentication; only where there is none
        (a state file, a timeline) may it be absent, and then says nothing. `call` of a `tool_call`, and `call` None of
        a result, name nobody yet. `branch_*` covers the descendants of the branch too; `step_start` of a node that
        nobody is at reaches the owners that have no agent of their own.
        """
        stated = _stated(event)
        tenant = event.attributes.get("tenant", ...)
        tenants = list(self._tenants) if tenant is ... else [tenant] if isinstance(tenant, str) else []
        found = [life for name in tenants for life in self._addressed_within(name, event, dict(stated))]
        if len(found) > 1:
            found.sort(key=lambda life: life.number)
        return found

    def could_be_addressed(self, event: Event, *, fixed: bool) -> Mapping[Life, None] | None:
        """A set that holds every owner that `addressed` gives, without looking at each; None where that is not so
        simple. fixed: found by fields alone that no event changes. Whether one is addressed says `is_meant`."""
        tenant, stated = event.attributes.get("tenant", ...), _stated(event)
        around = event.name.startswith("branch_") and isinstance(stated.get("branch"), str)
        if not isinstance(tenant, str) or around or (event.name == "step_start" and stated.get("node") is not None):
            return None
        return self._smallest(tenant, stated, [field for field in stated if not (fixed and field == "node")])

    def within_reach(self, event: Event) -> Iterable[Life]:
        """Every owner that the event could address whatever else has happened to them: by tenant, session and run."""
        tenant, stated = event.attributes.get("tenant", ...), _stated(event)
        if not isinstance(tenant, str):
            return self.lives.values()
        return self._smallest(tenant, stated, [field for field in ("session", "run") if field in stated])

    def _addressed_within(self, tenant: str, event: Event, stated: dict[str, object]) -> list[Life]:
        found = self._agreeing(tenant, stated)
        if event.name == "step_start" and not found and stated.get("node") is not None and "agent" not in stated:
            del stated["node"]
            found = self._agreeing(tenant, {**stated, "agent": None})
        if event.name.startswith("branch_") and isinstance(stated.get("branch"), str):
            found = self._with_descendants(tenant, stated, found)
        return found

    def _agreeing(self, tenant: str, stated: Mapping[str, object]) -> list[Life]:
        return [life for life in self._smallest(tenant, stated, stated) if _agrees(life, stated)]

    def _smallest(self, tenant: str, stated: Mapping[str, object], fields: Iterable[str]) -> Mapping[Life, None]:
        """The smallest set that is listed by one of these fields; whoever agrees with all that is stated is in it."""
        smallest = self._index.get((tenant, "tenant", None), _NOBODY)
        for field in fields:
            value = stated[field]
            if field == "call" and value is None:
                continue
            rows = self._index.get((tenant, field, _hashable(value)), _NOBODY)
            if field == "call" and not rows and len(stated) > 1:
                continue  # a call that was opened without an id may be closed with one, within the other fields
            if len(rows) < len(smallest):
                smallest = rows
        return smallest

    def _with_descendants(self, tenant: str, stated: Mapping[str, object], found: list[Life]) -> list[Life]:
        known = dict.fromkeys(found)
        names = [(stated["branch"], _hashable(stated.get("session", ...)))]
        visited = set()
        while names:
            name, session = names.pop()
            if (name, session) in visited:
                continue
            visited.add((name, session))
            for life in self._index.get((tenant, "parent", _hashable(name)), ()):
                owner = life.owner
                # Branch names are a session's own; a sub-agent with a session of its own has no branch.
                if session is not ... and owner.session != session and owner.branch is not None:
                    continue
                if "run" in stated and owner.run is not None and owner.run != stated["run"]:
                    continue
                known[life] = None
                if owner.branch is not None:
                    names.append((owner.branch, owner.session))
                elif owner.session is not None:
                    names.append((owner.session, ...))
        return list(known)

    def _keys(self, life: Life) -> list[_Key]:
        tenant = life.owner.tenant
        keys: list[_Key] = [(tenant, field, getattr(life.owner, field)) for field in _FIELDS]
        keys += [(tenant, "tenant", None), (tenant, "node", life.place())]
        if life.parent is not None:
            keys.append((tenant, "parent", life.parent))
        return keys

    def _drop(self, key: _Key, life: Life) -> None:
        rows = self._index.get(key)
        if rows is not None:
            rows.pop(life, None)
            if not rows:
                del self._index[key]


def is_meant(life: Life, event: Event) -> bool:
    """Whether one of those who could be addressed by an event is."""
    return _agrees(life, _stated(event))


def agrees(life: Life, event: Event) -> bool:
    """Whether all owner fields the event states (call apart) are the life's own."""
    attributes = event.attributes
    if "tenant" in attributes and attributes["tenant"] != life.owner.tenant:
        return False
    return _agrees(life, {f: attributes[f] for f in (*_FIELDS, "node") if f in attributes})


def _stated(event: Event) -> dict[str, object]:
    attributes = event.attributes
    stated = {field: attributes[field] for field in _FIELDS if field in attributes}
    if "node" in attributes:
        stated["node"] = attributes["node"]
    if "call" in attributes and event.name != "tool_call":
        call = attributes["call"]
        if call is not None or event.name != "tool_result":
            stated["call"] = call
    return stated


def _agrees(life: Life, stated: Mapping[str, object]) -> bool:
    for field, value in stated.items():
        if field == "node":
            if life.place() != value:
                return False
        elif field == "call":
            if not _has_call(life, value):
                return False
        elif getattr(life.owner, field) != value:
            return False
    return True


def _has_call(life: Life, value: object) -> bool:
    calls = life.phases.calls
    if value is None:
        return not calls
    return any(call.id == value or call.id is None for call in calls)


def _hashable(value: object) -> object:
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value
