"""What events have said about branches: rank, score, status, parent.

Kept apart from owners because a span can carry a branch's label in a request of another owner (the one that joins the
branches). Fed by `state`, read when a span's state attributes are asked for.
"""

from __future__ import annotations

from collections import OrderedDict

from kvpolicy import words
from kvpolicy.request import Owner
from kvpolicy.workflow.events import Event

_STATUS_AFTER = {"branch_start": "running", "branch_done": "done", "branch_pruned": "pruned", "resume": "running"}
_FACTS = ("rank", "score", "status")
_MOST_BRANCHES = 200_000  # the longest unspoken-of leave first

_Key = tuple[str | None, object, object, object]  # tenant, session, run, branch; None: not stated


class Branches:
    """State attributes of branches, each under the fields that the events about it stated."""

    def __init__(self) -> None:
        self._facts: OrderedDict[_Key, tuple[float, dict[str, object]]] = OrderedDict()

    def observe(self, event: Event, branch: object, owner: Owner | None = None) -> None:
        """Take what `event` says of `branch`; `owner`: it is known to be this owner's branch."""
        told = {name: event.attributes[name] for name in _FACTS if event.attributes.get(name) is not None}
        if told.get("status") not in (None, *words.STATUSES):
            del told["status"]
        if "status" not in told and event.name in _STATUS_AFTER:
            told["status"] = _STATUS_AFTER[event.name]
        if not told or not isinstance(branch, str):
            return
        if owner is not None:
            key: _Key = (owner.tenant, owner.session, owner.run, branch)
        else:
            tenant = event.attributes.get("tenant")
            key = (
                tenant if isinstance(tenant, str) else None,
                _text(event.attributes.get("session")),
                _text(event.attributes.get("run")),
                branch,
            )
        at, facts = self._facts.pop(key, (event.at, {}))
        facts.update(told)
        self._facts[key] = (max(at, event.at), facts)
        if len(self._facts) > _MOST_BRANCHES:
            self._facts.popitem(last=False)

    def attributes(self, owner: Owner, branch: str) -> dict[str, object]:
        """Rank, score and status of a branch as the owner sees it; a branch nobody spoke of is running."""
        merged: dict[str, object] = {"branch": branch, "status": "running"}
        rows = []
        for tenant in (None, owner.tenant):
            for session in dict.fromkeys((None, owner.session)):
                for run in dict.fromkeys((None, owner.run)):
                    row = self._facts.get((tenant, session, run, branch))
                    if row is not None:
                        rows.append(row)
        for _, facts in sorted(rows, key=lambda row: row[0]):  # the latest word counts
            merged.update(facts)
        return merged

    def forget(self, owner: Owner) -> None:
        """Drop what was kept under exactly this owner's branch."""
        self._facts.pop((owner.tenant, owner.session, owner.run, owner.branch), None)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
