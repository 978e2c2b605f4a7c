"""The operator's routes: policies validated, swapped, rolled back; all protection taken back; counters.

Apart from tenants' routes: they ask for the operator's own key, or, where none is configured, answer loopback only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hmac import compare_digest
from ipaddress import ip_address
from typing import Any

import orjson
from fastapi import APIRouter, Request, Response

from kvpolicy.faults import InputFault
from kvpolicy.language.load import load_text
from kvpolicy.policy.checked import examined
from kvpolicy.service.config import Admin
from kvpolicy.service.edge import Refusal, read_body
from kvpolicy.service.policies import Policies, Version
from kvpolicy.service.tenants import hash_key

MOST_TEXT = 4 << 20


def make_admin(settings: Admin, policies: Policies, release_all: Callable[[], int]) -> APIRouter:
    """The routes. release_all: takes back all protection, returns how many engines were told."""
    routes = APIRouter(prefix="/admin")

    def allow(request: Request) -> None:
        if settings.key is None:
            host = request.client.host if request.client is not None else ""
            if not _is_loopback(host):
                raise Refusal(403, "permission_error", "admin routes answer loopback only, unless admin.key is set")
            return
        scheme, _, secret = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not compare_digest(hash_key(secret.strip()), settings.key):
            raise Refusal(401, "authentication_error", "the operator's key is needed", {"www-authenticate": "Bearer"})

    @routes.get("/policies", summary="Every policy with its versions")
    async def get_policies(request: Request) -> Response:
        allow(request)
        return _json({"policies": {name: [_row(v) for v in policies.versions(name)] for name in policies.names}})

    @routes.post("/policies", summary="Validate a policy, bring it into force, or roll back", openapi_extra=_body())
    async def post_policy(request: Request) -> Response:
        allow(request)
        told = await _document(request)
        name = told.get("name")
        if not isinstance(name, str) or name not in policies.names:
            raise Refusal(404, "not_found_error", f"name: one of {', '.join(policies.names)} is needed")
        if "rollback" in told:
            return _json({"policy": _row(policies.roll_back(name, told["rollback"]))})
        text = told.get("text")
        if not isinstance(text, str):
            raise Refusal(400, "invalid_request_error", "text: the policy's own text is needed, or rollback: a version")
        found = examined(load_text(text, name=f"<{name}>"))
        rows = [d.as_json() for d in found.diagnostics]
        if any(d.severity == "error" for d in found.diagnostics):
            return _json({"policy": None, "diagnostics": rows}, 422)
        if told.get("validate_only"):
            return _json({"policy": None, "diagnostics": rows})
        return _json({"policy": _row(policies.put(name, found.policy())), "diagnostics": rows})

    @routes.post("/release-all", summary="Take back all protection at once")
    async def post_release_all(request: Request) -> Response:
        allow(request)
        return _json({"engines": release_all()})

    return routes


def _row(version: Version) -> Mapping[str, Any]:
    return {"name": version.name, "version": version.number, "digest": version.digest}


async def _document(request: Request) -> Mapping[str, Any]:
    data = await read_body(request.receive, MOST_TEXT, 60.0, request.headers.get("content-length"))
    try:
        told = orjson.loads(data)
    except orjson.JSONDecodeError as fault:
        raise Refusal(400, "invalid_request_error", f"the body is not JSON: {fault}") from None
    if not isinstance(told, Mapping):
        raise InputFault("the body must be a JSON object")
    return told


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _json(document: object, status: int = 200) -> Response:
    return Response(orjson.dumps(document), status, media_type="application/json")


def _body() -> dict[str, Any]:
    examples = {
        "validate": {
            "value": {"name": "coding_agent", "text": "policy p\nturn { priority: 40 }", "validate_only": True}
        },
        "roll back": {"value": {"name": "coding_agent", "rollback": 1}},
    }
    content = {"application/json": {"schema": {"type": "object"}, "examples": examples}}
    return {"requestBody": {"required": True, "content": content}}
