"""A long body is read otherwise than a short one, and means the same."""

from __future__ import annotations

import json
from dataclasses import dataclass

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvpolicy.service.reading import LONG, read

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
