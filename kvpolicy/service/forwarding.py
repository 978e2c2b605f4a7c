"""There and back: a request goes to an upstream, its answer to the client, byte for byte as it comes.

`proxy` calls it with what may go out. A body is sent to one upstream at most: another is asked only where no connection
was made. Nothing of an answer is kept: the next piece is read when the client has taken the last. Whoever leaves,
client or upstream, ends the other side.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import aiohttp
from starlette.types import Receive, Send

from kvpolicy.service.config import Limits
from kvpolicy.service.edge import HOP_BY_HOP, Refusal
from kvpolicy.service.exchange import CANCELLED, DONE, FAILED
from kvpolicy.service.upstreams import Body, Engine, Upstreams

GOOD = 400  # answers below are watched
_NOT_MADE = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
_DROPPED = HOP_BY_HOP | {"date", "server"}
OURS = "x-kvp-"  # INVARIANT: what a client reads of its hints the gateway has said, and nobody behind it
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_FINAL, _LAST = 200, 599  # other answers are none: nobody asked for another protocol


class UpstreamBroke(Exception):
    """An answer that was begun cannot be ended: the server has to close the connection, not to end the body."""


@dataclass(slots=True)
class Passage:
    """One request on its way. target: path and query as they came. headers, body: what goes out; the body is let go of
    once it has. prefer: addresses in order of wish. told: answer headers of ours. asks: called with each upstream
    before it is asked; chose: with the one that answers and its status before the answer goes back; chunk: with each
    piece of a good answer, after it went back."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes | None
    model: str | None = None
    prefer: Sequence[str] = ()
    told: Mapping[str, str] = field(default_factory=dict)
    asks: Callable[[str], None] | None = None
    chose: Callable[[str, int], None] | None = None
    chunk: Callable[[bytes], None] | None = None


class Forwarding:
    """clock: seconds. counts: `upstream_faults retried stalled` are kept there."""

    def __init__(self, upstreams: Upstreams, limits: Limits, counts: Counter[str], clock: Callable[[], float]) -> None:
        self._upstreams, self._limits, self._counts, self._clock = upstreams, limits, counts, clock

    async def forward(self, passage: Passage, receive: Receive, send: Send) -> str:
        """DONE, CANCELLED by the client, or FAILED (an answer that is none). Raises Refusal where nothing went back
        yet, and UpstreamBroke."""
        sending = asyncio.ensure_future(self._exchange(passage, send))
        leaving = asyncio.ensure_future(_left(receive))
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not sending.done():
                sending.cancel()
                with suppress(asyncio.CancelledError, UpstreamBroke, Refusal):
                    await sending
                return CANCELLED
            return DONE if sending.result() else FAILED
        finally:
            leaving.cancel()
            sending.cancel()

    async def _exchange(self, passage: Passage, send: Send) -> bool:
        """Whether the whole of a good answer went back."""
        candidates = self._upstreams.candidates(passage.model, passage.prefer, self._clock())
        body, passage.body = Body(passage.body), None
        for place, engine in enumerate(candidates):
            engine.running += 1
            try:
                answer = await self._ask(engine, passage, body)
                if answer is None:  # nothing was sent: another may have it
                    self._counts["retried"] += place + 1 < len(candidates)
                    continue
                body.data = None
                if passage.chose is not None:
                    passage.chose(engine.url, answer.status)
                try:
                    return await self._back(send, answer, passage)
                finally:
                    answer.close()
            finally:
                engine.running -= 1
        raise Refusal(502, "api_error", "no upstream takes connections", {"retry-after": "1"})

    async def _ask(self, engine: Engine, passage: Passage, body: Body) -> aiohttp.ClientResponse | None:
        """The beginning of an answer; None where no connection was made. Raises Refusal where one broke."""
        if passage.asks is not None:
            passage.asks(engine.url)
        try:
            async with asyncio.timeout(self._limits.first_byte_s):
                answer = await engine.ask(passage.method, passage.target, passage.headers, body)
        except _NOT_MADE:
            self._counts["upstream_faults"] += 1
            engine.failed(self._clock())
            return None
        except TimeoutError:
            self._counts["upstream_faults"] += 1
            raise Refusal(504, "timeout_error", "the upstream did not answer in time") from None
        except (aiohttp.ClientError, OSError, ValueError):
            self._counts["upstream_faults"] += 1
            raise Refusal(502, "api_error", "the upstream ended the connection before it answered") from None
        engine.worked()
        if not _FINAL <= answer.status <= _LAST:
            self._counts["upstream_faults"] += 1
            answer.close()
            raise Refusal(502, "api_error", f"the upstream answered {answer.status}, for which nobody asked")
        return answer

    async def _back(self, send: Send, answer: aiohttp.ClientResponse, passage: Passage) -> bool:
        """Pass an answer on as it comes. A break on the way ends the client's connection without a clean end."""
        chunk = passage.chunk if answer.status < GOOD else None
        loop, limits, taking = asyncio.get_running_loop(), self._limits, False
        try:
            async with asyncio.timeout(None) as bound:
                bound.reschedule(loop.time() + limits.client_idle_s)
                headers = answer_headers(answer, passage.told)
                await send({"type": "http.response.start", "status": answer.status, "headers": headers})
                while True:
                    taking = False
                    bound.reschedule(loop.time() + limits.idle_s)
                    part = await answer.content.readany()
                    if not part:
                        break
                    taking = True
                    bound.reschedule(loop.time() + limits.client_idle_s)
                    await send({"type": "http.response.body", "body": part, "more_body": True})
                    if chunk is not None:
                        chunk(part)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            self._counts["stalled" if taking else "upstream_faults"] += 1
            raise UpstreamBroke("no more of an answer was taken" if taking else "no more of an answer came") from None
        except (aiohttp.ClientError, OSError) as fault:
            self._counts["upstream_faults"] += 1
            raise UpstreamBroke("the upstream ended the connection in the middle of its answer") from fault
        return answer.status < GOOD


def answer_headers(answer: aiohttp.ClientResponse, told: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """The headers that the client gets: the upstream's and ours."""
    named = {word.strip().lower() for word in answer.headers.get("connection", "").split(",")}
    headers = [
        (name, value)
        for name, value in answer.raw_headers
        if (key := name.decode("latin-1").lower()) not in _DROPPED
        and key not in named
        and not key.startswith(OURS)
        and not _CONTROL.search(value)  # no two servers read those alike, and ours sends none
    ]
    headers += [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in told.items()]
    return headers


async def _left(receive: Receive) -> None:
    """Until the client goes away."""
    while (await receive())["type"] != "http.disconnect":
        pass
