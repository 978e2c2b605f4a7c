"""The simulated server over HTTP: OpenAI's and Anthropic's routes, and the control channel beside them.

Bodies become calls (`openai`, `anthropic`, `responses`), calls run on `generation`; `look` has the routes that run
none. Needs the extra `serve`.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import StreamingResponse
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.types import Receive, Scope, Send

from kvpolicy import __version__
from kvpolicy.channel.channel import Channel
from kvpolicy.faults import InputFault
from kvpolicy.simulated import anthropic, openai, responses
from kvpolicy.simulated.blocks import Blocks
from kvpolicy.simulated.generation import Call, Generation
from kvpolicy.simulated.look import add_look, body_of
from kvpolicy.simulated.refusals import LABEL, answer, no_route, refused

TIMES = "x-kvp-simulated-times"  # seconds, of an answer in one piece
AT_ONCE = 64  # messages of the channel, before anything else has its turn

Read = Callable[[Mapping[str, Any], int, int], Call]
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


def make_app(generation: Generation, blocks: Blocks, model: str, channel: Channel | None = None) -> FastAPI:
    """The application. generation: where calls run; blocks: what they run on; model: the name it answers to; channel:
    where messages without a request come from, drained in the loop's own thread."""

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        if channel is not None:
            drain = drained(channel, blocks, asyncio.get_running_loop())
            channel.wake = drain
            drain()
        yield
        if channel is not None:
            channel.close()

    app = FastAPI(title="kvpolicy simulated engine", version=__version__, lifespan=life)
    number = itertools.count(1)

    @app.exception_handler(StarletteHTTPException)
    async def nothing_there(request: Request, fault: StarletteHTTPException) -> Response:
        return no_route(request.method, request.url.path, fault.status_code)

    async def serve(request: Request, read: Read, tell: Tell, stream: Stream) -> Response:
        try:
            body = await body_of(request)
            call = read(body, next(number), generation.longest)
            generation.admit(call)
        except InputFault as fault:
            return refused(request.url.path, str(fault))
        name = str(body.get("model") or model)
        if body.get("stream"):
            steps = generation.run(call)
            return _Streamed(stream(call, body, steps), steps)
        async with aclosing(generation.run(call)) as steps:
            async for _ in steps:
                if await request.is_disconnected():
                    return Response(status_code=499)
        told = answer(tell(call, name))
        told.headers[TIMES] = f"queued={call.queued_s:.4f}, first={call.first_token_s:.4f}, total={call.total_s:.4f}"
        return told

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

    add_look(app, generation, blocks, model)
    return app


def drained(channel: Channel, blocks: Blocks, loop: asyncio.AbstractEventLoop) -> Callable[[], None]:
    """A function for any thread that has the channel's messages taken up soon, in the loop's."""

    def drain() -> None:
        for message in channel.drain(AT_ONCE):
            channel.answer(message, blocks.take_up(message, loop.time()))
        if channel.pending:
            loop.call_soon(drain)

    def wake() -> None:
        loop.call_soon_threadsafe(drain)

    return wake
