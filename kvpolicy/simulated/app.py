"""The simulated server over HTTP: OpenAI's and Anthropic's routes, those by which vLLM tells tokens, and a look inside.

Bodies become calls (`openai`, `anthropic`, `responses`), calls run on `generation`. Needs the extra `serve`.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, suppress
from typing import Any

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from kvpolicy import __version__
from kvpolicy.faults import InputFault
from kvpolicy.simulated import anthropic, openai, responses
from kvpolicy.simulated.blocks import Blocks
from kvpolicy.simulated.chat import render
from kvpolicy.simulated.figures import exposition
from kvpolicy.simulated.generation import Call, Generation
from kvpolicy.simulated.text import tokens

LABEL = {"x-kvp-simulated": "1"}
LARGEST_BODY = 64 << 20  # bytes
MOST_SHOWN = 100_000

Read = Callable[[Mapping[str, Any], int], Call]
Tell = Callable[[Call, str], dict[str, Any]]
Stream = Callable[[Call, Mapping[str, Any], AsyncIterator[Mapping[str, Any]]], AsyncIterator[bytes]]


class _Streamed(StreamingResponse):
    """One whose steps end when the client goes, so that the request lets go of its blocks at once."""

    def __init__(self, content: AsyncIterator[bytes], steps: AsyncGenerator[Mapping[str, Any]]) -> None:
        super().__init__(content, media_type="text/event-stream", headers=LABEL)
        self._steps = steps

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            with suppress(RuntimeError):  # a step that is being made ends with its own task
                await self._steps.aclose()


def make_app(generation: Generation, blocks: Blocks, model: str) -> FastAPI:
    """The application. generation: where calls run; blocks: what they run on; model: the name it answers to."""
    app = FastAPI(title="kvpolicy simulated engine", version=__version__)
    number = itertools.count(1)

    async def serve(request: Request, read: Read, tell: Tell, stream: Stream) -> Response:
        try:
            body = await _body(request)
            call = read(body, next(number))
            generation.admit(call)
        except InputFault as fault:
            return _refused(str(fault))
        name = str(body.get("model") or model)
        if body.get("stream"):
            steps = generation.run(call)
            return _Streamed(stream(call, body, steps), steps)
        async with aclosing(generation.run(call)) as steps:
            async for _ in steps:
                if await request.is_disconnected():
                    return Response(status_code=499)
        return _json(tell(call, name))

    def name_of(body: Mapping[str, Any]) -> str:
        return str(body.get("model") or model)

    def wants_usage(body: Mapping[str, Any]) -> bool:
        options = body.get("stream_options")
        return isinstance(options, Mapping) and bool(options.get("include_usage"))

    @app.post("/v1/chat/completions")
    async def chat(request: Request) -> Response:
        return await serve(
            request,
            openai.chat_call,
            openai.chat_body,
            lambda call, body, steps: openai.chat_stream(call, name_of(body), steps, wants_usage(body)),
        )

    @app.post("/v1/completions")
    async def complete(request: Request) -> Response:
        return await serve(
            request,
            openai.text_call,
            openai.text_body,
            lambda call, body, steps: openai.text_stream(call, name_of(body), steps, wants_usage(body)),
        )

    @app.post("/v1/messages")
    async def messages(request: Request) -> Response:
        return await serve(
            request,
            anthropic.message_call,
            anthropic.message_body,
            lambda call, body, steps: anthropic.message_stream(call, name_of(body), steps),
        )

    @app.post("/v1/responses")
    async def respond(request: Request) -> Response:
        return await serve(
            request,
            responses.response_call,
            responses.response_body,
            lambda call, body, steps: responses.response_stream(call, name_of(body), steps),
        )

    @app.post("/v1/chat/completions/render")
    async def rendered(request: Request) -> Response:
        try:
            body = await _body(request)
            made = render(body.get("messages"), body.get("tools"), generate=body.get("add_generation_prompt", True))
        except InputFault as fault:
            return _refused(str(fault))
        return _json({"token_ids": made.tokens, "messages": made.messages, "tools_end": made.tools})

    @app.post("/tokenize")
    async def tokenized(request: Request) -> Response:
        try:
            body = await _body(request)
            if "messages" in body:
                ask = body.get("add_generation_prompt", True)
                ids = render(body["messages"], body.get("tools"), generate=bool(ask)).tokens
            elif isinstance(body.get("prompt"), str):
                ids = list(tokens(body["prompt"]))
            else:
                raise InputFault("a prompt or messages are needed")
        except InputFault as fault:
            return _refused(str(fault))
        return _json({"count": len(ids), "max_model_len": generation.longest, "tokens": ids})

    @app.get("/v1/models")
    async def models() -> Response:
        row = {"id": model, "object": "model", "created": 0, "owned_by": "kvpolicy-simulated"}
        return _json({"object": "list", "data": [{**row, "max_model_len": generation.longest}]})

    @app.get("/version")
    async def version() -> Response:
        return _json({"version": f"kvp-simulated-{__version__}", "simulated": True})

    @app.get("/health")
    async def health() -> Response:
        return Response(status_code=200, headers=LABEL)

    @app.get("/metrics")
    async def metrics() -> Response:
        text = exposition(generation, blocks, model)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8", headers=LABEL)

    @app.post("/reset_prefix_cache")
    async def reset() -> Response:
        import asyncio

        done = blocks.clear(asyncio.get_running_loop().time())
        return _json({"cleared": done}, 200 if done else 409)

    @app.get("/sim/blocks")
    async def shown(most: int = 1000) -> Response:
        return _json(blocks.look(min(max(most, 0), MOST_SHOWN)))

    @app.get("/sim/events")
    async def events(since: int = 0) -> Response:
        return _json({"next": blocks.sequence, "events": blocks.rows(since)})

    return app


async def _body(request: Request) -> Mapping[str, Any]:
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


def _json(document: object, status: int = 200) -> Response:
    return Response(orjson.dumps(document), status, media_type="application/json", headers=LABEL)


def _refused(message: str) -> Response:
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
    return _json({"type": "error", "error": error}, 400)
