"""What a path of a request means to the gateway: a model request, one that needs a salt, a closed one, or any other.

Asked by `proxy` before anything is passed on. Engines and the proxies before them do not agree on `//`, `.` and `..`;
what could be read as a guarded path by one of them is refused, so that no spelling leads around the guards.
"""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import unquote

from kvpolicy.service.edge import Refusal
from kvpolicy.service.exchange import DIALECTS

# Other routes by which an engine computes a prompt of a JSON object: no plan, but their tenant's salt.
SALTED = frozenset(
    [
        *("/generate", "/inference/v1/generate", "/invocations", "/v1/chat/completions/batch"),
        *("/v1/embeddings", "/v2/embed", "/pooling", "/classify", "/score", "/v1/score"),
        *("/rerank", "/v1/rerank", "/v2/rerank"),
    ]
)


def dialect_of(method: str, path: str) -> str | None:
    """The dialect of a model request; None for every other request."""
    return DIALECTS.get(path) if method == "POST" else None


def check(path: str, raw: bytes, closed: Collection[str]) -> None:
    """Raises Refusal for a path that may not go on. path: decoded once; raw: as it came."""
    if not raw.startswith(b"/"):
        raise Refusal(400, "invalid_request_error", "a path that begins with / is needed")
    plain = canonical(path)
    if plain is None:
        raise Refusal(400, "invalid_request_error", "a path without . and .. is needed")
    if plain in closed:
        raise Refusal(403, "permission_error", "this route of the engine is not open to clients")
    if path != plain and (plain in DIALECTS or plain in SALTED):
        raise Refusal(404, "not_found_error", f"there is no such route; {plain} is meant")


def canonical(path: str) -> str | None:
    """The path as the most lenient reader takes it; None where it has dot segments."""
    for _ in range(3):
        again = unquote(path)
        if again == path:
            break
        path = again
    parts = [part.partition(";")[0] for part in path.replace("\\", "/").split("/")]
    if any(part in (".", "..") for part in parts):
        return None
    return "/" + "/".join(part for part in parts if part)
