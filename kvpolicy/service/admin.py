"""The operator's routes: policies validated, swapped, rolled back; tenants read anew; all protection taken back.

Apart from tenants' routes: they ask for the operator's own key, or, where none is configured, answer loopback only,
and nobody there who speaks for others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from hmac import compare_digest
from ipaddress import ip_address
from typing import Any

from fastapi import APIRouter, Request, Response

from kvpolicy.faults import InputFault
from kvpolicy.language.load import load_text
from kvpolicy.policy.checked import examined
from kvpolicy.service.config import Admin
from kvpolicy.service.edge import Refusal
from kvpolicy.service.following import Following
from kvpolicy.service.own_routes import Entrance, answer, described
from kvpolicy.service.policies import Policies, Version
from kvpolicy.service.tenants import hash_key

MOST_TEXT = 4 << 20
_OF_OTHERS = ("x-forwarded-for", "forwarded", "x-real-ip")  # a proxy on this machine says so whom it speaks for
_RELOAD = {"reload": True}
_TEXT = "policy p\nturn { priority: 40 }"
EXAMPLES = {
    "validate": {"name": "coding_agent", "text": _TEXT, "validate_only": True},
    "swap": {"name": "coding_agent", "text": _TEXT},
    "roll back": {"name": "coding_agent", "rollback": 1},
    "read the files anew": _RELOAD,
}

Reload = Callable[[str], Awaitable[list[Version]]]


def allow(settings: Admin, request: Request) -> None:
    """Raises Refusal where it is not the operator who asks."""
    if settings.key is None:
        host = request.client.host if request.client is not None else ""
        if not _is_loopback(host):
            raise Refusal(403, "permission_error", "admin routes answer loopback only, unless admin.key is set")
        # INVARIANT: no header makes anybody the operator; one that tells of another client is a proxy's.
        if any(name in request.headers for name in _OF_OTHERS):
            raise Refusal(403, "permission_error", "admin routes answer nobody behind a proxy, unless admin.key is set")
        return
    if not _shows(request, settings.key):
        raise Refusal(401, "authentication_error", "the operator's key is needed", {"www-authenticate": "Bearer"})


def allow_metrics(settings: Admin, request: Request) -> None:
    """Raises Refusal where it is neither the operator who asks nor whoever may read metrics alone."""
    if settings.metrics_key is None or not _shows(request, settings.metrics_key):
        allow(settings, request)


def _shows(request: Request, hashed: str) -> bool:
    """Whether a request has the key of this hash."""
    scheme, _, secret = request.headers.get("authorization", "").partition(" ")
    return scheme.lower() == "bearer" and compare_digest(hash_key(secret.strip()), hashed)


def make_admin(
    settings: Callable[[], Admin],
    policies: Policies,
    release_all: Callable[[], int],
    reload: Reload,
    following: Following,
    entrance: Entrance,
) -> APIRouter:
    """The routes. settings: those of now. release_all: takes back all protection, returns how many engines were told.
    reload: reads the files of policies anew, all or nothing; following: does so for tenants. entrance: reads documents
    within the limits."""
    routes = APIRouter(prefix="/admin")

    def known(name: object) -> str:
        if not isinstance(name, str) or name not in policies.names:
            raise Refusal(404, "not_found_error", f"name: one of {', '.join(policies.names)} is needed")
        return name

    @routes.get("/policies", summary="Every policy with its versions")
    async def get_policies(request: Request) -> Response:
        allow(settings(), request)
        rows = {name: [_row(v) for v in policies.versions(name)] for name in policies.names}
        return answer({"policies": rows, "fault": policies.fault})

    @routes.get("/policies/{name:path}/diff", summary="What two versions of a policy decide differently")
    async def get_diff(request: Request, name: str, before: int, after: int) -> Response:
        allow(settings(), request)
        return answer(await asyncio.to_thread(policies.compare, known(name), before, after))

    @routes.post(
        "/policies", summary="Validate a policy, bring it into force, or roll back", openapi_extra=described(EXAMPLES)
    )
    async def post_policy(request: Request) -> Response:
        allow(settings(), request)
        told = await entrance.document(request, MOST_TEXT)
        if not isinstance(told, Mapping):
            raise InputFault("the body must be a JSON object")
        if told.get("reload") is True:
            return answer({"changed": [_row(version) for version in await reload("api")]})
        name = known(told.get("name"))
        if "rollback" in told:
            return answer({"policy": _row(policies.roll_back(name, told["rollback"]))})
        text = told.get("text")
        if not isinstance(text, str):
            raise Refusal(400, "invalid_request_error", "text: the policy's own text is needed, or rollback: a version")
        found = await asyncio.to_thread(lambda: examined(load_text(text, name=f"<{name}>")))
        rows = [d.as_json() for d in found.diagnostics]
        if any(d.severity == "error" for d in found.diagnostics):
            return answer({"policy": None, "diagnostics": rows}, 422)
        if told.get("validate_only"):
            return answer({"policy": None, "diagnostics": rows})
        return answer({"policy": _row(policies.put(name, found.policy(), "api")), "diagnostics": rows})

    @routes.get("/tenants", summary="Tenants as the configuration has them, without their keys")
    async def get_tenants(request: Request) -> Response:
        allow(settings(), request)
        return answer(following.as_json())

    @routes.post(
        "/tenants", summary="Read tenants and keys anew", openapi_extra=described({"read the file anew": _RELOAD})
    )
    async def post_tenants(request: Request) -> Response:
        allow(settings(), request)
        if await entrance.document(request, MOST_TEXT) != _RELOAD:
            raise Refusal(400, "invalid_request_error", 'the body must be {"reload": true}; tenants stand in the file')
        await following.reload()
        return answer(following.as_json())

    @routes.post("/release-all", summary="Take back all protection at once")
    async def post_release_all(request: Request) -> Response:
        allow(settings(), request)
        return answer({"engines": release_all()})

    return routes


def _row(version: Version) -> Mapping[str, Any]:
    return {"name": version.name, "version": version.number, "digest": version.digest, "source": version.source}


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
