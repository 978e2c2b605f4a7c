"""vLLM's KV events over ZMQ, brought into `Residency`: one `Feed` a data-parallel rank.

`take` reads what has come and returns at once; where the residency says that something is missing, it asks the
publisher's replay socket for it, at most once a second. Frames carry no name of the server's life, only numbers that
begin at 0 again and the time of each batch: a number that comes with another time than before is another life. So a
replay begins at the last number known, not behind it, and shows whether the server restarted meanwhile.
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

    counts: frames events replayed asked restarts malformed unknown; stored removed (blocks) cleared (whole clearings).
    """

    def __init__(
        self, worker: str, endpoint: str, replay: str | None = None, *, rank: int = 0, topic: str = ""
    ) -> None:
        import zmq

        self.worker = worker
        self.rank = rank
        self.counts: Counter[str] = Counter()
        self._again = zmq.Again
        self._context = zmq.Context()
        self._live = self._context.socket(zmq.SUB)
        self._live.set_hwm(HIGH_WATER)
        self._live.setsockopt_string(zmq.SUBSCRIBE, topic)
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
        self._asked_at: float | None = None

    def take(self, residency: Residency, now: float, wait_s: float = 0.0) -> list[Notice]:
        """Apply what has come; waits at most `wait_s` for a first frame. Never raises for what an engine sends."""
        notices: list[Notice] = []
        if wait_s > 0:
            self._live.poll(int(wait_s * 1000))
        for replayed, socket in ((False, self._live), (True, self._replay)):
            for frames in [] if socket is None else self._frames(socket):
                notices += self._frame(frames, residency, now, replayed)
        self._ask(residency, now)
        return notices

    def close(self) -> None:
        """Let the sockets go."""
        for socket in (self._live, self._replay):
            if socket is not None:
                socket.close(linger=0)
        self._context.term()

    def row(self, residency: Residency, now: float) -> dict[str, object]:
        """The rank's state and what was counted, for metrics."""
        return {**residency.row(self.worker, self.rank, now), "counts": dict(self.counts)}

    # --- inside -------------------------------------------------------------------------------------------

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
        if frames[-2] == END:
            self._asked_at = now
            return []
        number = int.from_bytes(frames[-2], "big")
        try:
            batch = decode(frames[-1], replayed=replayed)
        except InputFault:
            self.counts["malformed"] += 1
            return []  # its number is missing, so the rank is stale and a replay is asked for
        self.counts["replayed" if replayed else "frames"] += 1
        self.counts["unknown"] += batch.unknown
        if not self._of_this_life(number, batch):
            return []
        return self._apply(number, batch, residency, now)

    def _of_this_life(self, number: int, batch: Batch) -> bool:
        """Whether the batch belongs to the newest life; a new one begins with the first batch that shows it."""
        known, (highest, latest) = self._times.get(number), self._last
        other = known is not None and known != batch.at
        if other and batch.at < latest:
            return False  # late, of a life before
        if other or (known is None and number <= highest and batch.at > latest):
            self._life += 1
            self.counts["restarts"] += 1
            self._times.clear()
            self._last = (-1, 0.0)
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

    def _ask(self, residency: Residency, now: float) -> None:
        """Ask for what is missing, if anything is."""
        if self._replay is None or (self._asked_at is not None and now - self._asked_at < ASK_AGAIN_S):
            return
        source = residency.source(self.worker, self.rank)
        missing = source.replay_from
        if missing is None or (missing == 0 and source.seen < 0 and self._asked_at is not None):
            return
        import zmq

        with contextlib.suppress(self._again):
            self._replay.send_multipart([b"", max(0, missing - 1).to_bytes(8, "big")], zmq.NOBLOCK)
            self._asked_at = now
            self.counts["asked"] += 1
