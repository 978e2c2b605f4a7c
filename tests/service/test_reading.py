"""A long body is read otherwise than a short one, and means the same."""

from __future__ import annotations

import json
from dataclasses import dataclass

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kvpolicy.service import reading as reading_module
from kvpolicy.service.reading import LONG, read, read_object
from tests.service.turns import turns

NUMBERS = st.integers(-(1 << 70), 1 << 70) | st.floats(allow_nan=False, allow_infinity=False)
PLAIN = st.none() | st.booleans() | NUMBERS | st.text(max_size=12)
VALUES = st.recursive(PLAIN, lambda v: st.lists(v, max_size=4) | st.dictionaries(st.text(max_size=6), v, max_size=4))


@dataclass
class Held:
    body: bytes | None


def found(data: bytes, long: int) -> str:
    """What is read, or that it is refused."""
    held = Held(data)
    try:
        return repr(read(held, long))
    except ValueError:
        return "refused"
    finally:
        assert held.body is None


@given(VALUES, st.booleans())
def test_what_one_reads_the_other_reads_too(value: object, plain: bool) -> None:
    data = json.dumps(value, ensure_ascii=plain).encode()
    assert found(data, 0) == found(data, 1 << 30) != "refused"


@given(VALUES, st.integers(0, 200), st.binary(max_size=3))
def test_and_what_one_refuses_the_other_refuses(value: object, at: int, bytes_: bytes) -> None:
    data = json.dumps(value, ensure_ascii=False).encode()
    data = data[:at] + bytes_ + data[at + len(bytes_) :]
    assert found(data, 0) == found(data, 1 << 30)


def seldom(data: bytes) -> bytes:
    """A document with this in it, and so much besides that its letters beyond ASCII are rare."""
    return b'{"x":"%s","y":%s}' % (b"x" * 8 * len(data), data)


@given(VALUES, st.integers(1, 9))
def test_letters_beyond_ascii_mean_the_same_where_they_are_rare(value: object, piece: int) -> None:
    data = seldom(json.dumps(value, ensure_ascii=False).encode())
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(reading_module, "_PIECE", piece)
        assert found(data, 0) == found(data, 1 << 30) != "refused"


@given(st.lists(st.sampled_from([b"\\", b'"', b"\xc3\xa9", b"\xf0\x9f\x98\x80", b"\xff", b"a", b"u00e9"]), max_size=8),
       st.integers(1, 9))  # fmt: skip
@example([b"\\", b"\xc3\xa9"], 1)
@example([b"\\", b"\\", b"\xc3\xa9"], 1)
@example([b"\\u00", b"\xc3\xa9"], 9)
@example([b'"', b"\xc3\xa9", b'"'], 9)
def test_and_are_refused_where_they_are_no_json(parts: list[bytes], piece: int) -> None:
    data = seldom(b'"%s"' % b"".join(parts))
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(reading_module, "_PIECE", piece)
        assert found(data, 0) == found(data, 1 << 30)


@pytest.mark.parametrize("body", [b'{"prompt":[%s7]}' % (b"7," * (1 << 20)), b'{"x":[%s{}]}' % (b"0.5," * (1 << 20))])
def test_while_many_numbers_are_read_others_have_their_turn(body: bytes) -> None:
    had, _ = turns(lambda: read_object(Held(body)))
    assert had > 20  # a turn at the end, and one at the beginning, would be 2


@pytest.mark.parametrize(
    "text",
    [b"", b" ", b"NaN", b"-Infinity", b"[1e999]", b"{", b'{"a":1,}', b"[01]", b'"\x01"', b"\xef\xbb\xbf{}", b'"\xff"',
     b'{"a":1} x', b"[" * 100_000],
)  # fmt: skip
def test_what_is_no_json_is_refused_in_words_that_quote_nothing(text: bytes) -> None:
    assert found(text, 0) == found(text, 1 << 30) == "refused"
    with pytest.raises(ValueError) as fault:
        read(Held(b'{"xylophone' + text), 0)
    assert "xylophone" not in str(fault.value)


def test_half_a_letter_can_be_read_and_not_be_sent_on() -> None:
    """The one difference: orjson refuses it when it reads, and so does what writes the request to the engine."""
    assert found(b'"\\ud800"', 1 << 30) == "refused"
    with pytest.raises(orjson.JSONEncodeError):
        orjson.dumps(read(Held(b'"\\ud800"'), 0))


def test_only_a_long_body_is_read_otherwise() -> None:
    short = orjson.dumps(["x" * 100])
    assert found(short, LONG) == found(short, 0)
