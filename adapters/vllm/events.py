"""vLLM's KV events over ZMQ, brought into `Residency`: one `Feed` a data-parallel rank.

`take` reads what has come and returns at once; where the residency says that something is missing, it asks the
publisher's replay socket for it. Frames carry no name of the server's life, only numbers that begin at 0 again and the
time of each batch: a number that comes with another time than before is another life. So a replay begins at the last
number known, not behind it, and shows whether the server restarted meanwhile. It is asked for after a gap, after every
lost connection (live frames wait until it has ended), and after a silence, for the newest frame can be lost, too.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

from kvpolicy.adapters.vllm.decode import Batch, decode
from kvpolicy.faults import InputFault, Notice
from kvpolicy.residency import Residency

ASK_AGAIN_S = 1.0
SILENCE_S = 10.0
MOST_A_TURN = 2000  # frames read in one call
HIGH_WATER = 100_000
REMEMBERED = 4096
END = (-1).to_bytes(8, "big", signed=True)


def of_rank(endpoint: str, rank: int) -> str:
    """The endpoint of a data-parallel rank: vLLM adds it to the port. Raises InputFault where none is."""
    if rank == 0:
        return endpoint
    head, colon, port = endpoint.rpartition(":")
    if not endpoint.startswith("tcp://") or not colon or not port.isdecimal():
        raise InputFault(f"KV events: {endpoint} has no port that rank {rank} could be added to")
    return f"{head}:{int(port) + rank}"


class Feed:
    """One rank's stream. worker: its name in the residency. endpoint: where the engine publishes, as a client reaches
    it (`tcp://host:5557`). replay: its replay endpoint, None where it has none.

    counts: frames events replayed asked disconnects restarts malformed unknown; blocks stored removed; times cleared.
    """

    def __init__(
        self, worker: str, endpoint: str, replay: str | None = None, *, rank: int = 0, topic: str = ""
    ) -> None:
        import zmq

        self.worker = worker
        self.rank = rank
        self.counts: Counter[str] = Counter()
        self._again = zmq.Again
        self._disconnected = zmq.EVENT_DISCONNECTED
        self._context = zmq.Context()
        self._live = self._context.socket(zmq.SUB)
        self._live.set_hwm(HIGH_WATER)
        self._live.setsockopt_string(zmq.SUBSCRIBE, topic)
        self._connection = self._live.get_monitor_socket(zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED)
        self._replay: Any = None
        try:
            self._live.connect(of_rank(endpoint, rank))
            if replay is not None:
                self._replay = self._context.socket(zmq.DEALER)
                self._replay.set_hwm(HIGH_WATER)
                self._replay.connect(of_rank(replay, rank))
        except zmq.ZMQError as fault:
            self.close()
            raise InputFault(f"KV events: {endpoint}: {fault}") from fault
        self._life = 0
        self._times: dict[int, float] = {}
        self._last = (-1, 0.0)  # highest number of this life, and its time
        self._heard_at: float | None = None
        self._asked_at: float | None = None
        self._lost = False  # the connection was, and what the engine told meanwhile is not known yet
        self._asked_from = -1  # the number known when a replay was asked for last
        self._told = False  # that replay has brought a frame

    def take(self, residency: Residency, now: float, wait_s: float = 0.0) -> list[Notice]:
        """Apply what has come; waits at most `wait_s` for a first frame. Never raises for what an engine sends."""
        notices: list[Notice] = []
        if wait_s > 0:
            self._live.poll(int(wait_s * 1000))
        self._watch(residency, now)
        for replayed, socket in ((True, self._replay), (False, self._live)):
            if socket is not None and (replayed or not self._lost):
                for frames in self._frames(socket):
                    notices += self._frame(frames, residency, now, replayed)
        self._ask(residency, now)
        return notices

    def close(self) -> None:
        """Let the sockets go."""
        self._live.disable_monitor()
        for socket in (self._connection, self._live, self._replay):
            if socket is not None:
                socket.close(linger=0)
        self._context.term()

    def row(self, residency: Residency, now: float) -> dict[str, object]:
        """The rank's state and what was counted, for metrics."""
        return {**residency.row(self.worker, self.rank, now), "counts": dict(self.counts)}

    # --- inside -------------------------------------------------------------------------------------------

    def _watch(self, residency: Residency, now: float) -> None:
        """Notice that the connection was lost."""
        from zmq.utils.monitor import recv_monitor_message

        while self._connection.poll(0):
            event = recv_monitor_message(self._connection)["event"]
            if event == self._disconnected:
                self.counts["disconnects"] += 1
                if self._replay is None:  # nobody can say what comes next: as good as another life
                    self._begin(residency, now)
                else:
                    self._lost = True
                    residency.source(self.worker, self.rank).doubt()
            elif self._lost:
                self._asked_at = None  # it is back: ask at once

    def _begin(self, residency: Residency, now: float) -> None:
        """Another life of the server."""
        self._life += 1
        self._times.clear()
        self._last = (-1, 0.0)
        residency.worker(self.worker, now, incarnation=str(self._life))

    def _frames(self, socket: Any) -> list[list[bytes]]:
        import zmq

        found: list[list[bytes]] = []
        with contextlib.suppress(self._again):
            while len(found) < MOST_A_TURN:
                found.append(socket.recv_multipart(zmq.NOBLOCK))
        return found

    def _frame(self, frames: list[bytes], residency: Residency, now: float, replayed: bool) -> Sequence[Notice]:
        # [topic, number, payload] when live; a replay has empty frames in front, how many depends on the version.
        if len(frames) < 2 or len(frames[-2]) != 8:
            self.counts["malformed"] += 1
            return []
        self._heard_at = now
        if frames[-2] == END:
            self._replay_ended(residency, now)
            return []
        number = int.from_bytes(frames[-2], "big")
        try:
            batch = decode(frames[-1], replayed=replayed)
        except InputFault:
            self.counts["malformed"] += 1
            return []  # its number is missing, so the rank is stale and a replay is asked for
        self.counts["replayed" if replayed else "frames"] += 1
        self._told = self._told or replayed
        self.counts["unknown"] += batch.unknown
        if not self._of_this_life(number, batch, residency, now):
            return []
        return self._apply(number, batch, residency, now)

    def _of_this_life(self, number: int, batch: Batch, residency: Residency, now: float) -> bool:
        """Whether the batch belongs to the newest life; a new one begins with the first batch that shows it."""
        known, (highest, latest) = self._times.get(number), self._last
        other = known is not None and known != batch.at
        if other and batch.at < latest:
            return False  # late, of a life before
        if other or (known is None and number <= highest and batch.at > latest):
            self.counts["restarts"] += 1
            self._begin(residency, now)
        self._times[number] = batch.at
        if number > self._last[0]:
            self._last = (number, batch.at)
        self._times.pop(number - REMEMBERED, None)
        return True

    def _apply(self, number: int, batch: Batch, residency: Residency, now: float) -> Sequence[Notice]:
        rank = self.rank if batch.rank is None else batch.rank
        taken, notices = residency.take(self.worker, rank, number, batch.event, now, str(self._life))
        if taken.status != "ignored":
            for part in batch.event.parts:
                self.counts["events"] += 1
                self.counts[part.kind] += max(1, len(part.hashes))
        return notices

    def _replay_ended(self, residency: Residency, now: float) -> None:
        source = residency.source(self.worker, self.rank)
        if not self._told and self._last[0] == self._asked_from >= 0:
            # Its buffer is empty, so it has told nothing since it began: another life.
            self.counts["restarts"] += 1
            self._begin(residency, now)
        else:
            source.confirm()
        self._lost = False

    def _ask(self, residency: Residency, now: float) -> None:
        """Ask for what is missing, if anything may be."""
        if self._replay is None or (self._asked_at is not None and now - self._asked_at < ASK_AGAIN_S):
            return
        source = residency.source(self.worker, self.rank)
        silent = self._heard_at is None or now - self._heard_at >= SILENCE_S
        if not (self._lost or silent or (source.stale and source.seen >= 0)):
            return
        if silent and not self._lost and self._asked_at is not None and now - self._asked_at < SILENCE_S:
            return
        import zmq

        with contextlib.suppress(self._again):
            self._replay.send_multipart([b"", max(0, source.last).to_bytes(8, "big")], zmq.NOBLOCK)
            self._asked_at = now
            self._asked_from, self._told = self._last[0], False
            self.counts["asked"] += 1
