"""Throughput of a served vLLM without pressure: ours beside stock, two servers, batches in turn. `make bench-vllm`.

Runs in an environment that has vLLM, on the tiny model of the tests. A batch is 32 requests, 4 at once, each with a
prompt of its own of 160 tokens and 16 tokens of answer, in a pool that holds all of them. One batch goes to each server
in turn, the order changing from pair to pair; the ratio of their times is the median over pairs with a bootstrapped
95 % interval. First nothing is said to ours; then every request carries two spans. A model this small makes steps of a
few milliseconds, so what we cost weighs more here than on a real one.
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.bench.conditions import main as conditions
from tests.engines import tiny_model
from tests.engines.vllm.live.serving import Server, prompt

PAIRS, REQUESTS, AT_ONCE, PROMPT, ANSWER, BLOCKS = 11, 32, 4, 160, 16, 16_384
RESAMPLES = 2000

_seeds = count(1)


def batch(server: Server, more: Callable[[int], dict[str, Any]]) -> float:
    """Seconds for one batch of requests that share nothing."""
    seeds = [next(_seeds) for _ in range(REQUESTS)]

    def one(seed: int) -> None:
        answer = server.complete(prompt(seed, PROMPT), ANSWER, ignore_eos=True, **more(seed))
        assert answer.prompt == PROMPT
        assert answer.cached == 0

    began = time.perf_counter()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(one, seeds))
    return time.perf_counter() - began


def wishes(seed: int) -> dict[str, Any]:
    """A request's directives: a head that ranks high for its session, and the rest for a minute."""
    spans = [
        {"kind": "system", "start": 0, "end": 96, "priority": 90},
        {"kind": "turn", "start": 96, "end": PROMPT, "priority": 60, "ttl": 60},
    ]
    return {"kv_transfer_params": {"kvpolicy": {"owner": f"s{seed}", "spans": spans}}}


def compare(title: str, stock: Server, ours: Server, more: Callable[[int], dict[str, Any]]) -> None:
    """Print the ratio of times, ours to stock."""
    batch(stock, lambda _: {})
    batch(ours, more)
    ratios, times = [], []
    for pair in range(PAIRS):
        if pair % 2:
            mine, theirs = batch(ours, more), batch(stock, lambda _: {})
        else:
            theirs, mine = batch(stock, lambda _: {}), batch(ours, more)
        ratios.append(mine / theirs)
        times.append(theirs)
    low, high = interval(ratios)
    tokens = REQUESTS * (PROMPT + ANSWER) / statistics.median(times)
    print(
        f"  {title}: {statistics.median(ratios):.3f} of stock's time [{low:.3f}, {high:.3f}], {PAIRS} pairs;"
        f" stock {tokens:,.0f} tokens a second",
        flush=True,
    )


def interval(values: list[float]) -> tuple[float, float]:
    """The 95 % interval of the median."""
    dice = random.Random(0)
    medians = sorted(statistics.median(dice.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return medians[int(0.025 * RESAMPLES)], medians[int(0.975 * RESAMPLES) - 1]


def main() -> int:
    conditions()
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "tiny"
        tiny_model.make(model)
        stock = Server(
            model, Path(folder) / "s", ["--kvp-off", "--enable-prompt-tokens-details"], blocks=BLOCKS
        ).start()
        ours = Server(model, Path(folder) / "o", blocks=BLOCKS).start()
        try:
            stock.up()
            ours.up()
            compare("before the first directive", stock, ours, lambda _: {})
            compare("two spans with every request", stock, ours, wishes)
        finally:
            stock.stop()
            ours.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
