"""`kvp engine`: starts the simulated inference server and stays until it is told to stop.

Prints one JSON line with its address when it is ready; logs go to stderr.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kvpolicy.faults import InputFault, install

if TYPE_CHECKING:
    from kvpolicy.channel.channel import Channel
    from kvpolicy.simulated.blocks import Blocks

HELP = "Start a simulated OpenAI-compatible engine with real KV accounting (no model runs)."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`--blocks N --block-size B --cpu-blocks N --model NAME --host --port`, and the speed of its steps."""
    from kvpolicy.claims.ledger import BUDGET
    from kvpolicy.simulated.speed import Speed

    normal = Speed()
    parser.add_argument("--host", default="127.0.0.1", help="default: 127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one (default)")
    parser.add_argument("--blocks", type=int, default=256, metavar="N", help="blocks on the GPU; default: 256")
    parser.add_argument("--block-size", type=int, default=16, metavar="B", help="tokens a block; default: 16")
    parser.add_argument("--cpu-blocks", type=int, default=0, metavar="N", help="blocks in CPU memory; default: 0")
    parser.add_argument(
        "--budget",
        type=float,
        default=BUDGET,
        metavar="SHARE",
        help=f"of blocks that may be protected; default: {BUDGET:g}",
    )
    parser.add_argument("--channel", metavar="ADDRESS", help="control channel: unix:/path or tcp://127.0.0.1:PORT")
    parser.add_argument("--events", metavar="ENDPOINT", help="publish KV events over ZMQ, such as tcp://127.0.0.1:5557")
    parser.add_argument("--replay", metavar="ENDPOINT", help="replay of those events, such as tcp://127.0.0.1:5558")
    parser.add_argument("--model", default="sim", help="the name it answers to; default: sim")
    parser.add_argument("--max-model-len", type=int, default=1 << 20, metavar="T", help="prompt and answer, tokens")
    for name, value in (("overhead", normal.overhead), ("prefill", normal.prefill), ("decode", normal.decode)):
        text = {"overhead": "a request", "prefill": "an uncached token", "decode": "an output token"}[name]
        parser.add_argument(f"--{name}-s", type=float, default=value, metavar="S", help=f"{text}; default: {value:g}")


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT. Raises InputFault for sizes that cannot be, or where the extra is missing."""
    try:
        from kvpolicy.listening import serve
        from kvpolicy.simulated.app import make_app
    except ImportError as fault:
        raise InputFault(f"kvp engine needs {fault.name}: {install('serve')}") from None
    from kvpolicy.simulated.blocks import Blocks
    from kvpolicy.simulated.generation import Generation
    from kvpolicy.simulated.speed import Speed

    if args.block_size < 1:
        raise InputFault(f"a block has at least one token, not {args.block_size}")
    speed = Speed(args.overhead_s, args.prefill_s, args.decode_s)
    if min(speed.overhead, speed.prefill, speed.decode) < 0:
        raise InputFault("times must not be negative")
    if not 0 <= args.budget <= 1:
        raise InputFault(f"--budget: a share from 0 to 1 is needed, not {args.budget:g}")
    if args.replay and not args.events:
        raise InputFault("--replay: there is nothing to replay without --events")
    blocks = Blocks(args.blocks, args.block_size, args.cpu_blocks, args.budget)
    generation = Generation(blocks, args.block_size, speed, args.max_model_len)
    channel = _channel(args.channel, blocks)
    also: dict[str, object] = {} if channel is None else {"channel": str(channel.address)}
    publisher = None
    if args.events:
        from kvpolicy.simulated.publisher import Publisher

        publisher = Publisher(args.events, args.replay)
        blocks.publish = publisher.publish
        also |= {"events": publisher.endpoint, "replay": publisher.replay}
    try:
        return serve(make_app(generation, blocks, args.model, channel), args.host, args.port, also=also)
    finally:
        if channel is not None:
            channel.close()
        if publisher is not None:
            publisher.close()


def _channel(address: str | None, blocks: Blocks) -> Channel | None:
    if address is None:
        return None
    import os

    from kvpolicy.channel.channel import Channel
    from kvpolicy.channel.wire import TOKEN_VARIABLE

    channel = Channel(address, token=os.environ.get(TOKEN_VARIABLE), status=blocks.claims.status)
    if not channel.start():
        raise InputFault(f"--channel: {channel.fault}")
    return channel
