"""The control channel's wire: addresses, lines of JSON, and which messages are well formed.

Shared by the engine's side (`channel`) and the service's (`channel_client`). Standard library only: it is imported in
the engine's process.

One JSON object a line, both ways. A message may carry `id` (string or whole number); its answers carry it back.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

ADDRESS_VARIABLE, TOKEN_VARIABLE = "KVPOLICY_CHANNEL", "KVPOLICY_CHANNEL_TOKEN"
LONGEST_LINE = 1 << 20  # bytes: a plan of some thousand spans
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_MOST_HASHES = 16384
_LONGEST_NAME = 512
_LONGEST_S = 30 * 24 * 3600.0

# What a message says, by its `do`. `hello` and `ping` are answered by the channel itself, the rest by the scheduler.
OF_THE_CHANNEL = frozenset({"hello", "ping"})
OF_THE_SCHEDULER = frozenset({"rank", "claim", "plan", "release", "release_all", "end", "event", "show"})
_NEEDS_OWNER = frozenset({"rank", "claim", "plan", "release", "end", "event"})
OWNER_KEYS = ("tenant", "session", "run", "agent", "branch")


class ChannelFault(Exception):
    """An address or a message that cannot be used; the text says what to write instead."""


@dataclass(frozen=True, slots=True)
class Address:
    """A Unix socket's path, or a port on loopback."""

    path: str | None = None
    host: str = "127.0.0.1"
    port: int = 0

    def __str__(self) -> str:
        if self.path is not None:
            return f"unix:{self.path}"
        return f"tcp://[{self.host}]:{self.port}" if ":" in self.host else f"tcp://{self.host}:{self.port}"

    @property
    def family(self) -> socket.AddressFamily:
        """Of its socket."""
        if self.path is not None:
            return socket.AF_UNIX
        return socket.AF_INET6 if ":" in self.host else socket.AF_INET

    @property
    def target(self) -> str | tuple[str, int]:
        """What `bind` and `connect` take."""
        return self.path if self.path is not None else (self.host, self.port)

    def of_rank(self, rank: int) -> Address:
        """The address of another data-parallel rank: as vLLM does it for its events, the rank is added to the port."""
        if rank == 0:
            return self
        if self.path is not None:
            return Address(f"{self.path}.{rank}")
        return Address(None, self.host, self.port + rank if self.port else 0)


def read_address(text: str) -> Address:
    """`unix:/run/kvp.sock` (or a bare path), or `tcp://127.0.0.1:5559`. Raises ChannelFault."""
    if text.startswith("tcp://"):
        host, colon, port = text.removeprefix("tcp://").rpartition(":")
        host = host.strip("[]")
        if not colon or not port.isdecimal() or int(port) > 65535:
            raise ChannelFault(f"channel address {text!r}: write tcp://127.0.0.1:PORT")
        if host not in _LOOPBACK:
            message = "only loopback is listened on, and spoken to; a tunnel may end there"
            raise ChannelFault(f"channel address {text!r}: {message}: write tcp://127.0.0.1:{port}")
        return Address(None, "127.0.0.1" if host == "localhost" else host, int(port))
    path = text.removeprefix("unix:")
    path = path.removeprefix("//") if path.startswith("///") else path
    if not path.startswith("/"):
        raise ChannelFault(f"channel address {text!r}: write unix:/absolute/path or tcp://127.0.0.1:PORT")
    if len(os.fsencode(path)) > 100:
        raise ChannelFault(f"channel address {text!r}: a socket's path may have 100 bytes; this one has more")
    if not Path(path).parent.is_dir():
        raise ChannelFault(f"channel address {text!r}: {Path(path).parent} is no directory")
    return Address(path)


class Lines:
    """Bytes as they come, cut into lines. A line beyond LONGEST_LINE is dropped up to its end, and yields None."""

    __slots__ = ("_buffer", "_skipping")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._skipping = False

    def feed(self, data: bytes) -> Iterator[bytes | None]:
        """The lines that `data` completes."""
        self._buffer += data
        while (end := self._buffer.find(b"\n")) >= 0:
            line = bytes(self._buffer[:end])
            del self._buffer[: end + 1]
            if self._skipping:
                self._skipping = False
            elif len(line) > LONGEST_LINE:
                yield None
            elif line.strip():
                yield line
        if len(self._buffer) > LONGEST_LINE:
            if not self._skipping:
                self._skipping = True
                yield None
            self._buffer.clear()


def encode(row: dict[str, Any]) -> bytes:
    """A row as its line."""
    return json.dumps(row, separators=(",", ":"), allow_nan=False, default=str).encode() + b"\n"


def read_message(line: bytes) -> dict[str, Any]:
    """The message of a line. Raises ChannelFault naming the key and what it takes."""
    try:
        row = json.loads(line, parse_float=_finite, parse_constant=_finite)
    except (ValueError, RecursionError):
        raise ChannelFault("no JSON: one object a line is needed") from None
    if not isinstance(row, dict):
        raise ChannelFault('a JSON object is needed, such as {"do": "ping"}')
    do = row.get("do")
    if not isinstance(do, str) or do not in OF_THE_CHANNEL | OF_THE_SCHEDULER:
        raise ChannelFault(f"do: one of {', '.join(sorted(OF_THE_CHANNEL | OF_THE_SCHEDULER))} is needed")
    if not isinstance(row.get("id", ""), str | int):
        raise ChannelFault("id: a string or a whole number is needed")
    if any(key.startswith("_") for key in row):
        raise ChannelFault("keys that begin with _ are the channel's own")
    if do in OF_THE_SCHEDULER:
        _check(do, row)
    return row


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):  # nobody could write it again
        raise ChannelFault(f"{text[:20]} is no number that JSON can say")
    return number


def _check(do: str, row: dict[str, Any]) -> None:
    if do in _NEEDS_OWNER or row.get("owner") is not None:
        _check_owner(row.get("owner"))
    claim = row.get("claim")
    if claim is not None and (not isinstance(claim, str | int) or isinstance(claim, bool)):
        raise ChannelFault("claim: the string or whole number that its request gave it is needed")
    priority = row.get("priority")
    if priority is not None and not (_number(priority) and int(priority) == priority and 0 <= priority <= 100):
        raise ChannelFault("priority: a whole number from 0 to 100 is needed")
    for key in ("ttl", "hold"):
        value = row.get(key)
        if value is not None and not (_number(value) and 0 < value <= _LONGEST_S):
            raise ChannelFault(f"{key}: seconds above 0, at most 30 days, or null are needed")
    hashes = row.get("hashes")
    if hashes is not None and not _hashes(hashes):
        raise ChannelFault(f"hashes: a list of at most {_MOST_HASHES} hashes as in the engine's events is needed")
    if do == "claim" and not hashes:
        raise ChannelFault("hashes: missing; a claim without a request names its blocks, the first of the prompt first")
    if not _asks(do, row):
        raise ChannelFault("priority: missing; say what to change: priority, ttl, hold or protected")
    if not isinstance(row.get("protected", False), bool | None):
        raise ChannelFault("protected: true or false is needed")
    lifetimes = row.get("lifetimes")
    if lifetimes is not None and not (isinstance(lifetimes, list) and all(isinstance(name, str) for name in lifetimes)):
        raise ChannelFault("lifetimes: a list of lifetimes such as session is needed")
    if do == "plan":
        _check_plan(row)
    if do == "event" and not isinstance(row.get("event"), str):
        raise ChannelFault("event: missing; its name in the language, such as tool_result")


def _asks(do: str, row: dict[str, Any]) -> bool:
    """Whether it says what to change; null takes a ttl or a hold away, which is a change of what stands alone."""
    if do not in ("rank", "claim"):
        return True
    taken = do == "rank" and ("ttl" in row or "hold" in row)
    return taken or any(row.get(key) is not None for key in ("priority", "ttl", "hold", "protected"))


def _check_plan(row: dict[str, Any]) -> None:
    name = row.get("request")
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME:
        raise ChannelFault("request: missing; the name that its payload gives it")
    if not isinstance(row.get("payload"), dict | str):
        raise ChannelFault("payload: missing; what goes with a request: an object with owner and spans")


def _check_owner(owner: object) -> None:
    if isinstance(owner, dict) and owner:
        strange = next((key for key in owner if key not in OWNER_KEYS), None)
        if strange is not None:
            raise ChannelFault(f"owner: unknown key {strange!r}; the keys are {', '.join(OWNER_KEYS)}")
        names = [name for name in owner.values() if name is not None]
    else:
        names = [owner]
    if not names or not all(isinstance(name, str) and 0 < len(name) <= _LONGEST_NAME for name in names):
        raise ChannelFault(
            f"owner: a session's name (1 to {_LONGEST_NAME} characters) or an object with "
            f"{', '.join(OWNER_KEYS)} is needed"
        )


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _hashes(value: object) -> bool:
    return (
        isinstance(value, list)
        and len(value) <= _MOST_HASHES
        and all(isinstance(h, str) or (isinstance(h, int) and not isinstance(h, bool)) for h in value)
    )
