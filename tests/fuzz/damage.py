"""What goes wrong with a text or a JSON document on its way: pieces lost, doubled, swapped, and values nobody expects.

Everything is drawn from the `random.Random` that is passed in, so a case is the same whenever its numbers are.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any

# Values that stand where another was: of the wrong type, too large, too small, not a number, not a text.
ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 1 << 31, 1 << 53, 1 << 63, 1 << 64, -(1 << 63), -(1 << 63) - 1, 10**30, 0.5,
    -0.0, 1e-320, 1e15, 1e300, -1e300, "", " ", "0", "-1", "1e9999", "never", "nothing", "null", "é", "\u0000",
    "\u202e", "a" * 300, "hold 9999999999d", "pin", "drop", "60s fixed", "hold until turn_start", "12k", "100%", "gpu",
    "any", "session", "turn", "output", [], {}, [[]], [None], [0, 0], ["a", 1, None], {"": ""}, {"a": {"b": [1]}},
)  # fmt: skip
RAW_NUMBERS = ("1e999", "-1e999", "NaN", "Infinity", "1" * 400, "0." + "0" * 400 + "1", "1E5", "-0", "01", "1.")
SCRAPS = (
    "{", "}", "[", "]", "(", ")", ",", ":", "->", "*", "=", "!=", "<=", ">", ";", '"', "'", "\\", "#", "\n", "\r",
    "\t", "\u00a0", "\ufeff", "\u2028", "\x00", "\x1b[31m", "é", "🙂", "%", "0", "1", "-1", "99999999999999999999999",
    "1e400", "0.0000000000000000000001", "12parsecs", "300", "40%", "0s", "1d", "30d", "10000d", "1Mi", "1TiB", "never",
    "else", "when", "on", "until", "layer x { ", "use base", "use continuum as c with patience = 1s", "let a = a",
    "limit any { hold: at most 40% of gpu }", "test \"t\" { ", "expect turn { priority: 3 }", "given turn", "then 3min",
    "assume idle() = 2min", "at tool_call[tool = grep]", "workflow w { agent a, b  a -> b }", "loop b -> a at most 3",
    "turn { priority: 90 }", "retention: hold until tool_result", "tier: gpu, cpu after 1s", "p95(tool.duration)",
    "x: any over x { priority: 1 }", "1 / 0", "(1 + 1)", "not not", "- - 1", "idle() / 0s", "any[depth > 1, depth < 1]",
)  # fmt: skip


def text(chance: Random, base: str) -> str:
    """A text, damaged in one to eight places."""
    for _ in range(chance.choice((1, 1, 2, 3, 8))):
        base = _once(chance, base)
    return base


def raw(chance: Random, base: bytes) -> bytes:
    """Bytes, damaged: cut, flipped, with bytes that are no text."""
    data = bytearray(base)
    for _ in range(chance.choice((1, 1, 3, 20))):
        at = chance.randrange(len(data) + 1)
        match chance.randrange(4):
            case 0:
                del data[at:]
            case 1:
                data[at : at + 1] = bytes((chance.randrange(256),))
            case 2:
                data[at:at] = chance.randbytes(chance.choice((1, 4, 200)))
            case _:
                del data[at : at + chance.choice((1, 10))]
    return bytes(data)


def document(chance: Random, value: Any, times: int | None = None) -> Any:
    """A JSON value with some of its parts replaced, renamed, lost or doubled."""
    for _ in range(chance.choice((0, 0, 0, 1, 1, 2, 5)) if times is None else times):
        value = _changed(chance, value)
    return value


def as_json(chance: Random, value: Any) -> str:
    """JSON text, now and then with a number that JSON or Python has trouble with."""
    written = json.dumps(value, ensure_ascii=chance.random() < 0.5)
    if chance.random() < 0.05:
        digits = [i for i, c in enumerate(written) if c.isdigit() and not written[i - 1].isalnum()]
        if digits:
            at = chance.choice(digits)
            written = written[:at] + chance.choice(RAW_NUMBERS) + written[at + 1 :]
    if chance.random() < 0.03:
        written = text(chance, written)
    return written


def nested(chance: Random, depth: int) -> str:
    """An opening repeated `depth` times, its middle, and as many closings, or not."""
    head, opening, middle, closing, tail = chance.choice(_NESTS)
    closings = chance.choice((depth, depth, 0, depth + 1))
    return head + opening * depth + middle + closing * closings + tail


_NESTS = (
    ("turn { priority: ", "(", "1", ")", " }"),
    ("turn when ", "not ", "yes", "", " { priority: 1 }"),
    ("turn when ", "not (", "idle() > 1s", ")", " { priority: 1 }"),
    ("", "on tool_call { ", "turn { priority: 1 }", " }", ""),
    ("", "layer a { ", "turn { priority: 1 }", " }", ""),
    ("turn { priority: ", "min(1, ", "1", ")", " }"),
    ("turn { priority: ", "1 + ", "1", "", " }"),
    ("turn { priority: ", "turns_ago() * ", "1", "", " }"),
    ("turn { ttl: ", "p95(tool.duration) else ", "1s", "", " }"),
    ("turn { priority: ", "-", "1", "", " }"),
    ("", "[", "1", "]", ""),
    ("", '{"a":', "1", "}", ""),
)


def _once(chance: Random, base: str) -> str:
    at = chance.randrange(len(base) + 1)
    length = chance.choice((1, 1, 5, 30, 200))
    match chance.randrange(9):
        case 0:
            return base[:at]
        case 1:
            return base[:at] + base[at + length :]
        case 2:
            return base[:at] + base[at : at + length] * chance.choice((2, 3, 50)) + base[at + length :]
        case 3:
            other = chance.randrange(len(base) + 1)
            return base[:at] + base[other : other + length] + base[at:]
        case 4:
            lines = base.split("\n")
            chance.shuffle(lines)
            return "\n".join(lines)
        case 5:
            words = base.split(" ")
            one, two = chance.randrange(len(words)), chance.randrange(len(words))
            words[one], words[two] = words[two], words[one]
            return " ".join(words)
        case 6:
            return base.replace(base[at : at + 1] or "x", chance.choice(SCRAPS), chance.choice((1, -1)))[:200_000]
        case _:
            return base[:at] + chance.choice((" ", "")) + chance.choice(SCRAPS) + chance.choice((" ", "")) + base[at:]


def _changed(chance: Random, value: Any) -> Any:
    """One part of a value changed, at whatever depth."""
    if not isinstance(value, dict | list) or not value or chance.random() < 0.05:
        return _instead(chance, value)
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    key = chance.choice(keys)
    copy = dict(value) if isinstance(value, dict) else list(value)
    match chance.randrange(8):
        case 0:
            del copy[key]
        case 1 if isinstance(copy, dict):
            copy[chance.choice((f"{key}s", "x", "", "kind", "at", "id", "event"))] = copy.pop(key)
        case 1:
            copy.insert(key, copy[key])
        case 2 if isinstance(copy, list):
            chance.shuffle(copy)
        case _:
            copy[key] = _changed(chance, copy[key])
    return copy


def _instead(chance: Random, value: Any) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool) and chance.random() < 0.5:
        return chance.choice((value + 1, value - 1, -value, value * 1000, value / 3, float(value)))
    return chance.choice(ODD)
