"""Whether a directive changes what a vLLM keeps: told by cached tokens, not by a status.

Three prompts of random tokens are sent: a witness, one with a directive that drops it, one with none; then others, a
few blocks at a time, and after each the last two are asked for again, with the same words. Where ranks are followed
the dropped one goes with the first blocks that are evicted at all. Plain vLLM goes by age, and both are always the
newest: they stay, while the witness, which nobody asks for again, goes in the end. So the dropped one gone: directives
work. The witness gone and the dropped one there: they are accepted and ignored. Both there: the cache has room, and
`--flood` fills it.
"""

from __future__ import annotations

import contextlib
import random
import time

from kvpolicy.adapters.vllm.doctor_http import Server
from kvpolicy.channel.client import ask
from kvpolicy.examining import BROKEN, GOOD, UNKNOWN, Finding
from kvpolicy.faults import InputFault

LONG = 4  # full blocks of the three prompts
UNASKED = 64  # blocks sent without --flood
_IDS = (16, 250)  # token ids that every vocabulary has


def effect(server: Server, model: str, size: int, blocks: int | None, flood: bool, channel: str | None) -> Finding:
    """size: tokens a block. blocks: of the cache, where known. channel: where to take the directive back."""
    dice = random.Random(time.time_ns())
    owner = f"kvp-doctor-{dice.getrandbits(48):012x}"
    witness, dropped, other = (_prompt(dice, LONG * size + 1) for _ in range(3))
    step = LONG if blocks is not None and blocks < 16 * LONG else 2 * LONG
    most = 2 * (blocks or 16 * UNASKED) if flood else UNASKED
    sent = 0
    try:
        for prompt, more in ((witness, {}), (dropped, _drop(owner, LONG * size)), (other, {})):
            server.cached(model, prompt, **more)
        while sent < most:
            server.cached(model, _prompt(dice, step * size + 1))
            sent += step
            left = server.cached(model, dropped, **_drop(owner, LONG * size))
            stayed = server.cached(model, other)
            details: dict[str, object] = {"dropped": left, "other": stayed, "blocks_sent": sent}
            if left < LONG * size <= stayed:
                message = f"a dropped prompt left first: {left} of its tokens are cached, {stayed} of another one's"
                return Finding("effect", GOOD, message, details=details)
            if stayed < LONG * size:
                message = f"neither prompt stayed ({left} and {stayed} tokens cached): the server is too busy to tell"
                return Finding("effect", UNKNOWN, message, "ask again when it has less to do", details)
        if server.cached(model, witness) < LONG * size:
            message = "directives are accepted and ignored: an untouched prompt left, and a dropped one stayed"
            return Finding("effect", BROKEN, message, "start it with `kvp run vllm …`", details)
    except InputFault as fault:
        return Finding("effect", UNKNOWN, f"the probe could not be sent: {fault}")
    finally:
        if channel is not None:
            with contextlib.suppress(InputFault):
                ask(channel, {"do": "release", "owner": owner}, within_s=2.0)
    message = f"nothing was evicted while {sent} blocks were sent, so nothing can be told"
    return Finding("effect", UNKNOWN, message, None if flood else "--flood fills the cache and tells", details)


def _drop(owner: str, end: int) -> dict[str, object]:
    spans = [{"kind": "turn", "start": 0, "end": end, "retention": "drop", "for": "session"}]
    return {"kv_transfer_params": {"kvpolicy": {"owner": owner, "spans": spans}}}


def _prompt(dice: random.Random, tokens: int) -> list[int]:
    return [dice.randrange(*_IDS) for _ in range(tokens)]
