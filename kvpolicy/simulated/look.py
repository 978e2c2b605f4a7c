"""Routes of the simulated server that run no request: tokens as vLLM tells them, models, metrics, and a look inside.

Added to the application by `app`, which shares the reading of bodies. Looking renews nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import orjson
from fastapi import FastAPI, Request, Response

from kvpolicy import __version__
from kvpolicy.faults import InputFault
from kvpolicy.simulated import anthropic
from kvpolicy.simulated.blocks import Blocks
from kvpolicy.simulated.chat import render
from kvpolicy.simulated.figures import exposition
from kvpolicy.simulated.generation import Generation
from kvpolicy.simulated.refusals import LABEL, answer, refused
from kvpolicy.simulated.text import tokens

LARGEST_BODY = 64 << 20  # bytes
MOST_SHOWN = 100_000


def add_look(app: FastAPI, generation: Generation, blocks: Blocks, model: str) -> None:
    """Add them to an application. The arguments are those of `app.make_app`."""

    @app.post("/v1/messages/count_tokens")
    async def counted(request: Request) -> Response:
        try:
            call = anthropic.message_call(await body_of(request), 0, generation.longest)
        except InputFault as fault:
            return refused(request.url.path, str(fault))
        return answer({"input_tokens": len(call.prompt)})

    @app.post("/v1/chat/completions/render")
    async def rendered(request: Request) -> Response:
        try:
            body = await body_of(request)
            made = render(body.get("messages"), body.get("tools"), generate=body.get("add_generation_prompt", True))
        except InputFault as fault:
            return refused(request.url.path, str(fault))
        return answer({"token_ids": made.tokens, "messages": made.messages, "tools_end": made.tools})

    @app.post("/tokenize")
    async def tokenized(request: Request) -> Response:
        try:
            body = await body_of(request)
            if "messages" in body:
                ask = body.get("add_generation_prompt", True)
                ids = render(body["messages"], body.get("tools"), generate=bool(ask)).tokens
            elif isinstance(body.get("prompt"), str):
                ids = list(tokens(body["prompt"]))
            else:
                raise InputFault("a prompt or messages are needed")
        except InputFault as fault:
            return refused(request.url.path, str(fault))
        return answer({"count": len(ids), "max_model_len": generation.longest, "tokens": ids})

    @app.get("/v1/models")
    async def models() -> Response:
        row = {"id": model, "object": "model", "created": 0, "owned_by": "kvpolicy-simulated"}
        return answer({"object": "list", "data": [{**row, "max_model_len": generation.longest}]})

    @app.get("/version")
    async def version() -> Response:
        return answer({"version": f"kvp-simulated-{__version__}", "simulated": True})

    @app.get("/health")
    async def health() -> Response:
        return Response(status_code=200, headers=LABEL)

    @app.get("/metrics")
    async def metrics() -> Response:
        text = exposition(generation, blocks, model)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8", headers=LABEL)

    @app.post("/reset_prefix_cache")
    async def reset() -> Response:
        done = blocks.clear(asyncio.get_running_loop().time())
        return answer({"cleared": done}, 200 if done else 409)

    @app.get("/sim/blocks")
    async def shown(most: int = 1000) -> Response:
        return answer(blocks.look(min(max(most, 0), MOST_SHOWN), asyncio.get_running_loop().time()))

    @app.get("/sim/events")
    async def events(since: int = 0) -> Response:
        return answer({"next": blocks.sequence, "events": blocks.rows(since)})


async def body_of(request: Request) -> Mapping[str, Any]:
    """A request's body as an object. Raises InputFault for what is none, or is too large."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > LARGEST_BODY:
            raise InputFault(f"the body is larger than {LARGEST_BODY >> 20} MiB")
        parts.append(part)
    try:
        body = orjson.loads(b"".join(parts))
    except orjson.JSONDecodeError as fault:
        raise InputFault(f"the body is not JSON: {fault}") from None
    if not isinstance(body, Mapping):
        raise InputFault("the body must be a JSON object")
    return body
