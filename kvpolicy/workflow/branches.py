"""What events have said about branches: rank, score, status.

Kept apart from owners because a span can carry a branch's label in a request of another owner (the one that joins the
branches). Fed by `state`, read when a span's state attributes are asked for. Of every fact the word with the latest
time counts, in whatever order the words come.
"""

from __future__ import annotations

from collections import OrderedDict
from math import isfinite

from kvpolicy import words
from kvpolicy.request import Owner
from kvpolicy.workflow.events import Event

_STATUS_AFTER = {"branch_start": "running", "branch_done": "done", "branch_pruned": "pruned", "resume": "running"}
_FACTS = ("rank", "score", "status")
_MOST_BRANCHES = 200_000  # the longest unspoken-of leave first

_Key = tuple[str | None, object, object, object]  # tenant, session, run, branch; None: not stated
_Scope = tuple[str | None, object, object]
_Facts = dict[str, tuple[float, object]]  # by name: when it was said, and what


class Branches:
    """State attributes of branches, each under the fields that the events about it stated."""

    def __init__(self) -> None:
        self._facts: OrderedDict[_Key, _Facts] = OrderedDict()
        self._scored: dict[_Scope, dict[object, None]] = {}  # branches with a score, by run

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
            tenant, session, run = (_text(event.attributes.get(name)) for name in ("tenant", "session", "run"))
            key = (tenant, session, run, branch)
        facts = self._facts.pop(key, {})
        for name, value in told.items():
            if name not in facts or event.at >= facts[name][0]:
                facts[name] = event.at, value
        self._facts[key] = facts
        if "score" in told:
            self._scored.setdefault(key[:3], {})[branch] = None
        if len(self._facts) > _MOST_BRANCHES:
            self._drop(next(iter(self._facts)))

    def attributes(self, owner: Owner, branch: str) -> dict[str, object]:
        """Rank, score and status of a branch as the owner sees it; a branch nobody spoke of is running."""
        latest: _Facts = {}
        for scope in _scopes(owner):
            for name, (at, value) in self._facts.get((*scope, branch), {}).items():
                if name not in latest or at >= latest[name][0]:
                    latest[name] = at, value
        return {"branch": branch, "status": "running", **{name: value for name, (_, value) in latest.items()}}

    def share_of_best(self, owner: Owner, branch: str) -> float:
        """A branch's score as a share of the best one in its run that is not pruned, 0 to 1.

        1 where it has none, or where no score is above 0. A score below 0 counts as 0.
        """
        own = _number(self.attributes(owner, branch).get("score"))
        if own is None:
            return 1.0
        best = own
        for scope in _scopes(owner):
            for other in self._scored.get(scope, ()):
                facts = self._facts.get((*scope, other), {})
                score = _number(facts["score"][1]) if "score" in facts else None
                if score is not None and facts.get("status", (0.0, ""))[1] != "pruned":
                    best = max(best, score)
        return 1.0 if best <= 0.0 else max(0.0, own) / best

    def forget(self, owner: Owner) -> None:
        """Drop what was kept under exactly this owner's branch."""
        self._drop((owner.tenant, owner.session, owner.run, owner.branch))

    def _drop(self, key: _Key) -> None:
        self._facts.pop(key, None)
        scored = self._scored.get(key[:3])
        if scored is not None:
            scored.pop(key[3], None)
            if not scored:
                del self._scored[key[:3]]


def _scopes(owner: Owner) -> list[_Scope]:
    """Under which fields a branch of the owner's may have been spoken of, the least stated first."""
    return [
        (tenant, session, run)
        for tenant in (None, owner.tenant)
        for session in dict.fromkeys((None, owner.session))
        for run in dict.fromkeys((None, owner.run))
    ]


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if isfinite(number) else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
