"""What one claim costs that needs all the room others have protected: it has to grow like the lines it displaces.

`python tests/bench/displacing.py [LINES…]`. Processor time of the claim alone, the best of three, on lines that share
nothing, that share their first block, that are one prompt of as many owners, and that share a system prompt behind
which each owner has two kinds of its own.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable

import conditions

from kvpolicy.directive import PIN, Retention
from kvpolicy.language.load import load_text
from kvpolicy.policy.compile import compile as compile_policy
from kvpolicy.pool import Pool
from kvpolicy.request import Owner, Request, Span
from kvpolicy.steering import Steering
from kvpolicy.steering.calls import Wish

SIZES, BLOCKS, SIZE = (100, 200, 400, 800), 10, 16
PINNED = (
    "policy pinned\nsystem { retention: pin priority: 40 }\nturn { retention: pin priority: 30 }\n"
    "tool_result { retention: pin priority: 20 }\n"
)
KINDS = ("system", *["turn"] * 4, *["tool_result"] * 5)
SHAPES: dict[str, Callable[[int, int], int]] = {
    "apart": lambda line, place: 1_000 * (line + 1) + place,
    "one block shared": lambda line, place: 1_000 * (line + 1) + place if place else 0,
    "one prompt": lambda line, place: place,
    "three kinds": lambda line, place: 1_000 * (line + 1) + place if place else 0,
}


def displace(shape: str, lines: int) -> float:
    """Milliseconds."""
    spans = tuple(
        Span(kind, i * SIZE, (i + 1) * SIZE) for i, kind in enumerate(KINDS if shape == "three kinds" else ())
    )
    prompts = [[SHAPES[shape](line, place) for place in range(BLOCKS)] for line in range(lines)]
    room = len({block for prompt in prompts for block in prompt})
    loaded = load_text(PINNED)
    assert loaded.files is not None
    pool = Pool(4 * room, block_size=SIZE)
    steering = Steering(compile_policy(loaded.files), pool, budget=0.25)
    for line, prompt in enumerate(prompts):
        owner = Owner(session=str(line))
        steering.request(Request(str(line), owner, BLOCKS * SIZE, SIZE, spans), prompt, 0.0)
        steering.finish(str(line), 0.0, finished=True)
        if not spans:
            steering.claim(owner, prompt, 0.0, Wish(priority=50, retention=Retention(PIN)))
    assert pool.protected_blocks == room
    wanted = [-1 - place for place in range(room)]
    steering.request(Request("last", Owner(session="last"), room * SIZE, SIZE), wanted, 0.0)
    gc.collect()
    gc.disable()
    began = time.process_time()
    answers = steering.claim(Owner(session="last"), wanted, 0.0, Wish(priority=80, retention=Retention(PIN)))
    took = time.process_time() - began
    gc.enable()
    assert answers[0].granted == room and pool.protected_blocks == room and not steering.counters["failures"]
    return took * 1e3


def main() -> None:
    """Print one line a shape."""
    conditions.main()
    sizes = [int(word) for word in sys.argv[1:]] or SIZES
    print(f"displacing: one claim that displaces {', '.join(map(str, sizes))} lines of {BLOCKS} blocks")
    for shape in SHAPES:
        taken = [min(displace(shape, lines) for _ in range(3)) for lines in sizes]
        print(f"  {shape:<18}" + "".join(f"{ms:9.1f} ms" for ms in taken))


if __name__ == "__main__":
    main()
