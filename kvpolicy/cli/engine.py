"""`kvp engine`: starts the simulated inference server and stays until it is told to stop.

Prints one JSON line with its address when it is ready; logs go to stderr.
"""

from __future__ import annotations

import argparse

from kvpolicy.faults import InputFault

HELP = "Start a simulated OpenAI-compatible engine with real KV accounting (no model runs)."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`--blocks N --block-size B --cpu-blocks N --model NAME --host --port`, and the speed of its steps."""
    from kvpolicy.simulated.speed import Speed

    normal = Speed()
    parser.add_argument("--host", default="127.0.0.1", help="default: 127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one (default)")
    parser.add_argument("--blocks", type=int, default=256, metavar="N", help="blocks on the GPU; default: 256")
    parser.add_argument("--block-size", type=int, default=16, metavar="B", help="tokens a block; default: 16")
    parser.add_argument("--cpu-blocks", type=int, default=0, metavar="N", help="blocks in CPU memory; default: 0")
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
        raise InputFault(f"kvp engine needs {fault.name}: pip install 'kvpolicy[serve]'") from None
    from kvpolicy.simulated.blocks import Blocks
    from kvpolicy.simulated.generation import Generation
    from kvpolicy.simulated.speed import Speed

    if args.block_size < 1:
        raise InputFault(f"a block has at least one token, not {args.block_size}")
    speed = Speed(args.overhead_s, args.prefill_s, args.decode_s)
    if min(speed.overhead, speed.prefill, speed.decode) < 0:
        raise InputFault("times must not be negative")
    blocks = Blocks(args.blocks, args.block_size, args.cpu_blocks)
    generation = Generation(blocks, args.block_size, speed, args.max_model_len)
    return serve(make_app(generation, blocks, args.model), args.host, args.port)
