"""What the simulated server says no with: in OpenAI's words, or in Anthropic's on Anthropic's routes.

Read by `app`. Clients turn these into their own errors, so the form matters as much as the status.
"""

from __future__ import annotations

from http import HTTPStatus

import orjson
from fastapi import Response

LABEL = {"x-kvp-simulated": "1"}
_ANTHROPIC = ("/v1/messages", "/v1/complete")
_TYPES = {
    400: ("invalid_request_error", "invalid_request_error"),
    404: ("not_found_error", "NotFoundError"),
    405: ("invalid_request_error", "MethodNotAllowed"),
}


def answer(document: object, status: int = 200) -> Response:
    """A JSON answer with the label."""
    return Response(orjson.dumps(document), status, media_type="application/json", headers=LABEL)


def refused(path: str, message: str, status: int = 400) -> Response:
    """An error of the dialect that the path belongs to."""
    of_anthropic, of_openai = _TYPES.get(status, ("api_error", HTTPStatus(status).phrase))
    if path in _ANTHROPIC or path.startswith(tuple(f"{each}/" for each in _ANTHROPIC)):
        return answer({"type": "error", "error": {"type": of_anthropic, "message": message}}, status)
    code = status if status != HTTPStatus.BAD_REQUEST else None
    return answer({"error": {"message": message, "type": of_openai, "param": None, "code": code}}, status)


def no_route(method: str, path: str, status: int) -> Response:
    """A route that this server does not have, or not with that method."""
    what = f"{method} {path}" if status == HTTPStatus.METHOD_NOT_ALLOWED else path
    return refused(path, f"{what}: the simulated engine has no such route", status)
