"""The upstream of `service_load`: reads requests, streams 20 chunks a second or answers at once; no work of its own.

Started by `service_load` as a process of its own; by itself it prints what it is and ends.
"""

from __future__ import annotations

import asyncio
import sys

PACE_S = 0.05
CHUNK = b'data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":" word"}}]}\n\n'
LAST = (
    b'data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
    b"data: [DONE]\n\n"
)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
ANSWER = (
    b'{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"finish_reason":"stop",'
    b'"message":{"role":"assistant","content":"so"}}],"usage":{"prompt_tokens":64,"completion_tokens":1,'
    b'"total_tokens":65}}'
)
TOKENS = b'{"count":64,"max_model_len":4096,"tokens":[%s]}' % b",".join(b"%d" % n for n in range(64))


def whole(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)


def piece(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = next((int(r[15:]) for r in head.split(b"\r\n") if r.startswith(b"content-length:")), 0)
            body = await reader.readexactly(length)
            if b"/tokenize" in head[:64]:
                writer.write(whole(TOKENS))
            elif b'"stream":true' in body or b'"stream": true' in body:
                chunks = int(body.rsplit(b'"max_tokens":', 1)[1].split(b"}")[0].split(b",")[0])
                writer.write(HEAD + piece(CHUNK))
                for _ in range(chunks - 1):
                    await asyncio.sleep(PACE_S)
                    writer.write(piece(CHUNK))
                writer.write(piece(LAST) + b"0\r\n\r\n")
            else:
                writer.write(whole(ANSWER))
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def main() -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        asyncio.run(main())
    print("the upstream of service_load.py: nothing to measure by itself")
