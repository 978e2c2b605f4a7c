"""The control channel over real sockets: what gets in, what is answered, and that neither side ever waits."""

from __future__ import annotations

import json
import os
import socket
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kvpolicy.channel.channel import Channel
from kvpolicy.channel.client import ChannelClient, ask
from kvpolicy.channel.wire import LONGEST_LINE
from kvpolicy.faults import InputFault

RANK = {"do": "rank", "owner": "s1", "priority": 90}


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short one: a socket's path has about a hundred bytes."""
    with tempfile.TemporaryDirectory(prefix="kvp") as name:
        yield Path(name)


@pytest.fixture
def channel(folder: Path) -> Iterator[Channel]:
    opened = Channel(f"unix:{folder}/c", capacity=4, status=lambda: {"vllm": "0.0"})
    assert opened.start(), opened.fault
    yield opened
    opened.close()


def wait(until: Callable[[], Any], within_s: float = 10.0) -> Any:
    ends = time.monotonic() + within_s
    while not (found := until()):
        assert time.monotonic() < ends, "did not come true"
        time.sleep(0.005)
    return found


class Peer:
    """A client that says whatever it likes."""

    def __init__(self, channel: Channel) -> None:
        assert channel.address is not None
        self.socket = socket.socket(channel.address.family)
        self.socket.settimeout(10.0)
        self.socket.connect(channel.address.target)
        self.reader = self.socket.makefile("rb")

    def say(self, *lines: bytes | dict[str, Any]) -> None:
        self.socket.sendall(
            b"".join((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n" for line in lines)
        )

    def hear(self) -> dict[str, Any] | None:
        line = self.reader.readline()
        return json.loads(line) if line else None

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.reader.close()
        self.socket.close()


def test_messages_are_drained_in_order_a_few_at_a_time_and_answered(channel: Channel) -> None:
    with Peer(channel) as peer:
        peer.say(*({**RANK, "id": n} for n in range(3)))
        wait(lambda: len(channel._handover.waiting) == 3)
        assert channel.pending
        first, rest = channel.drain(2), channel.drain()
        assert [m["id"] for m in (*first, *rest)] == [0, 1, 2]
        assert [len(first), len(rest), channel.drain(), channel.pending] == [2, 1, [], False]
        channel.answer(rest[0], {"status": "accepted", "granted": 6})
        assert peer.hear() == {"id": 2, "status": "accepted", "granted": 6}


def test_what_no_step_takes_up_is_told_so_and_answered_all_the_same(channel: Channel) -> None:
    with Peer(channel) as peer:
        peer.say({**RANK, "id": "a"})
        told = peer.hear()
        assert told is not None and (told["id"], told["status"]) == ("a", "deferred")
        channel.answer(channel.drain()[0], {"status": "accepted"})
        assert peer.hear() == {"id": "a", "status": "accepted"}


def test_a_message_to_an_idle_engine_wakes_it(channel: Channel) -> None:
    woken = threading.Event()
    channel.wake = woken.set
    with Peer(channel) as peer:
        peer.say(RANK)
        assert woken.wait(10.0)


def test_a_message_behind_one_that_waits_wakes_it_too(channel: Channel) -> None:
    """The engine may have taken up the first and looked for the last time by then."""
    woken = threading.Semaphore(0)
    channel.wake = woken.release
    with Peer(channel) as peer:
        for _ in range(3):  # none is taken up
            peer.say(RANK)
            assert woken.acquire(timeout=10.0)


def test_a_wake_that_fails_stops_nothing(channel: Channel) -> None:
    def broken() -> None:
        raise RuntimeError("no engine")

    channel.wake = broken
    with Peer(channel) as peer:
        peer.say(RANK)
        wait(lambda: channel.pending)
        peer.say({"do": "ping"})
        answer = peer.hear()
        assert answer is not None and answer["status"] in ("accepted", "deferred")
    assert channel.fault is None


def test_a_full_queue_rejects_and_counts(channel: Channel) -> None:
    with Peer(channel) as peer:
        peer.say(*({**RANK, "id": n} for n in range(5)))
        row = peer.hear()
        assert row is not None and row["id"] == 4 and row["status"] == "rejected" and "4 messages wait" in row["reason"]
    assert channel.counts["full"] == 1
    assert len(channel.drain()) == 4


@pytest.mark.parametrize(
    ("line", "word"),
    [
        (b"{", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"\xff\xfe", "no JSON"),
        (b"[1]", "a JSON object"),
        (b'{"do": "dance"}', "do: one of"),
        (b'{"do": ["rank"]}', "do: one of"),
        (b'{"do": "rank", "priority": 9}', "owner:"),
        (b'{"do": "rank", "owner": {"boss": "x"}, "priority": 9}', "unknown key 'boss'"),
        (b'{"do": "rank", "owner": {}, "priority": 9}', "owner:"),
        (b'{"do": "rank", "owner": "a"}', "say what to change"),
        (b'{"do": "rank", "owner": "a", "priority": null}', "say what to change"),
        (b'{"do": "claim", "owner": "a", "hashes": [1], "ttl": null}', "say what to change"),
        (b'{"do": "rank", "owner": "a", "priority": 101}', "0 to 100"),
        (b'{"do": "rank", "owner": "a", "priority": true}', "0 to 100"),
        (b'{"do": "rank", "owner": "a", "priority": 1e999}', "1e999 is no number"),
        (b'{"do": "rank", "owner": "a", "ttl": 0}', "ttl: seconds above 0"),
        (b'{"do": "rank", "owner": "a", "hold": NaN}', "NaN is no number"),
        (b'{"do": "rank", "owner": "a", "protected": 1}', "protected:"),
        (b'{"do": "claim", "owner": "a", "priority": 9}', "hashes: missing"),
        (b'{"do": "claim", "owner": "a", "priority": 9, "hashes": [1.5]}', "hashes: a list"),
        (b'{"do": "event", "owner": "a"}', "event: missing"),
        (b'{"do": "end", "owner": "a", "lifetimes": "session"}', "lifetimes:"),
        (b'{"do": "ping", "_peer": 3}', "begin with _"),
        (b'{"do": "ping", "id": [1]}', "id:"),
        (b"x" * (LONGEST_LINE + 9), "too long"),
    ],
)
def test_a_malformed_message_is_answered_counted_and_goes_no_further(channel: Channel, line: bytes, word: str) -> None:
    with Peer(channel) as peer:
        peer.say(line, {"do": "ping", "id": 7})
        row, ping = peer.hear(), peer.hear()
    assert row is not None and row["status"] == "rejected" and word in row["reason"]
    assert ping is not None and ping["id"] == 7 and ping["engine"] == {"vllm": "0.0"}
    assert channel.counts["malformed"] == 1
    assert not channel.pending


def test_an_owner_may_be_an_object(channel: Channel) -> None:
    owner = {"tenant": "t", "session": "s", "branch": None}
    with Peer(channel) as peer:
        peer.say({"do": "end", "owner": owner, "lifetimes": ["session"]})
        wait(lambda: channel.pending)
    assert channel.drain()[0]["owner"] == owner


def test_the_socket_is_for_its_user_alone_and_goes_when_the_channel_does(channel: Channel, folder: Path) -> None:
    path = folder / "c"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    channel.close()
    channel.close()
    assert not path.exists()
    assert channel.drain() == []
    channel.answer({"id": 1, "_peer": 1}, {"status": "accepted"})  # a scheduler that does not know yet


def test_a_socket_left_behind_is_taken_over_and_a_living_one_is_not(channel: Channel, folder: Path) -> None:
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(folder / "old"))
    dead.close()
    second = Channel(f"unix:{folder}/old")
    assert second.start(), second.fault
    second.close()
    third = Channel(f"unix:{folder}/c")
    assert not third.start()
    assert third.fault is not None and "in use" in third.fault.lower()
    (folder / "file").write_text("kept", encoding="utf-8")
    assert not Channel(f"unix:{folder}/file").start()
    assert (folder / "file").read_text(encoding="utf-8") == "kept"


@pytest.mark.parametrize(
    ("address", "word"),
    [
        ("tcp://0.0.0.0:5000", "only loopback"),
        ("tcp://127.0.0.1", "tcp://127.0.0.1:PORT"),
        ("tcp://127.0.0.1:99999", "tcp://127.0.0.1:PORT"),
        ("relative", "absolute"),
        ("unix:/no/such/folder/c", "no directory"),
        ("unix:/" + "x" * 120, "100 bytes"),
    ],
)
def test_an_address_that_cannot_be_is_a_fault_not_an_exception(address: str, word: str) -> None:
    channel = Channel(address, token="t")
    assert not channel.start()
    assert channel.fault is not None and word in channel.fault
    assert channel.drain() == []
    with pytest.raises(InputFault, match="channel address"):
        ask(address, {"do": "ping"})


def test_a_port_asks_for_the_token_first() -> None:
    assert not Channel("tcp://127.0.0.1:0").start()
    channel = Channel("tcp://127.0.0.1:0", token="secret")
    assert channel.start(), channel.fault
    try:
        for said in (RANK, {"do": "hello", "token": "wrong"}, {"do": "hello"}, b"GET / HTTP/1.1"):
            with Peer(channel) as peer:
                peer.say(said)
                row = peer.hear()
                assert row is not None and "not authenticated" in row["reason"]
                assert peer.hear() is None
        assert channel.counts["refused"] == 4 and not channel.pending
        address = str(channel.address)
        assert ask(address, {"do": "ping"}, token="secret")["status"] == "accepted"
        with pytest.raises(InputFault, match="token was refused"):
            ask(address, {"do": "ping"}, token="guess")
    finally:
        channel.close()


def test_ranks_have_addresses_of_their_own(folder: Path) -> None:
    channel = Channel(f"unix:{folder}/c", rank=3)
    assert channel.start()
    assert (folder / "c.3").exists()
    channel.close()
    assert str(Channel("tcp://127.0.0.1:5000", rank=3, token="t").address) == "tcp://127.0.0.1:5003"


def test_a_client_sends_and_hears_and_survives_an_engine_that_restarts(folder: Path) -> None:
    address, heard = f"unix:{folder}/c", []
    client = ChannelClient(address, on_answer=heard.append)
    try:
        client.send(RANK)  # nobody is there yet
        for life in range(2):
            channel = Channel(address)
            assert channel.start(), channel.fault
            number = client.send({**RANK, "priority": life})
            wait(lambda channel=channel, life=life: any(m["priority"] == life for m in answered(channel)))
            wait(lambda number=number: any(row["id"] == number for row in heard))
            channel.close()
            wait(lambda: not client.connected)
        assert client.counts["connects"] == 2
        assert client.counts["dropped"] == 0
    finally:
        client.close()


def answered(channel: Channel) -> list[dict[str, Any]]:
    messages = channel.drain()
    for message in messages:
        channel.answer(message, {"status": "accepted"})
    return messages


def test_a_client_without_an_engine_never_waits_and_counts_what_it_drops(folder: Path) -> None:
    client = ChannelClient(f"unix:{folder}/nobody", capacity=10)
    for _ in range(25):
        client.send(RANK)
    assert client.counts["dropped"] >= 15
    client.close()
    assert client.counts["dropped"] == 25
    with pytest.raises(InputFault, match="owner"):
        client.send({"do": "rank", "priority": 3})
    with pytest.raises(InputFault, match="a line at most 1048576"):
        client.send({**RANK, "claim": "x" * LONGEST_LINE})


def test_a_peer_that_reads_nothing_is_let_go(channel: Channel) -> None:
    with Peer(channel) as peer:
        peer.socket.setblocking(False)
        line = json.dumps({"do": "ping"}).encode() + b"\n"

        def gone() -> bool:
            try:
                for _ in range(200):
                    peer.socket.send(line * 50)
            except BlockingIOError:
                return False
            except OSError:
                return True
            return False

        wait(gone, 30.0)
    assert ask(str(channel.address), {"do": "ping"})["status"] == "accepted"


def test_the_engine_side_loads_no_more_than_the_standard_library() -> None:
    import subprocess
    import sys

    program = (
        "import sys\nbefore = set(sys.modules)\n"
        "from kvpolicy.channel import channel; from kvpolicy.adapters.vllm import wake\n"
        "new = {m.split('.')[0] for m in set(sys.modules) - before}\n"
        "print(sorted(new - set(sys.stdlib_module_names) - {'kvpolicy'}))"
    )
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=os.environ)
    assert out.stdout.strip() == "[]"


def test_a_thread_that_dies_says_why_and_changes_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    channel = Channel(f"unix:{folder}/c")
    assert channel.start()
    with Peer(channel) as peer:
        peer.say(RANK)
        wait(lambda: channel.pending)
        (message,) = channel.drain()

        def broken(*_: object) -> None:
            raise RuntimeError("of ours")

        monkeypatch.setattr(type(channel._listener), "_read", broken)
        peer.say(RANK)
        wait(lambda: channel.fault)
    assert "RuntimeError: of ours" in str(channel.fault)
    assert not channel.pending and channel.drain() == []
    channel.answer(message, {"status": "accepted"})
    channel.close()
