"""Who may hit a request's blocks, as text that enters their hashes: the embedded engine's form of a salt.

The service mints salts of its own for other engines, with a keyed hash; here nothing leaves the process.
"""

from __future__ import annotations

from kvpolicy.plan import plan
from kvpolicy.policy.model import State
from kvpolicy.policy.policy import Policy
from kvpolicy.request import Request


def salt(policy: Policy | None, request: Request, state: State, now: float) -> str:
    """The scope of the request's narrowest `share`, with the salt that it states itself. INVARIANT: never wider than
    the tenant, unless all its spans say so."""
    share = "tenant"
    if policy is not None and any("share" in rule.values for rule in policy.rules):
        share = plan(policy, request, state, now).share
    owner = request.owner
    stated = request.extra.get("salt") or ""
    if share == "global":
        return f"global|{stated}"
    scope: tuple[object, ...] = (owner.tenant,)
    if share != "tenant":
        part = getattr(owner, share)
        # Nothing tells this owner's session or run: a salt of its own, never a wider one.
        scope = (owner.tenant, share, request.id if part is None else part, part is None)
    return f"{share}|{scope!r}|{stated}"
