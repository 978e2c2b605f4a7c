"""Random timelines, all steps allowed: the pool stays consistent, answers agree with it, nothing is left behind."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kvpolicy.language.load import load_text
from kvpolicy.policy.checked import examined
from kvpolicy.replay import Replay
from tests.pool.structure import check_structure

Row = dict[str, Any]
POLICY = examined(
    load_text(
        """
        policy p
        system { priority: 80 ttl: 20s }
        turn { priority: 45 }
        on tool_call until tool_result { turn { retention: hold 8s } }
        on turn_end until turn_start { tool_result { retention: drop } }
        limit any { hold: at most 50% of gpu }
        """
    )
).policy()
SESSIONS = ({"session": "a"}, {"session": "b"}, {"session": "a", "agent": "sub"}, {})
KINDS = ("system", "turn", "tool_result")

request = st.fixed_dictionaries(
    {
        "do": st.just("request"),
        "owner": st.sampled_from(SESSIONS),
        "words": st.text("xyz", min_size=1, max_size=6),
        "key": st.sampled_from([None, None, "k"]),
        "chunks": st.booleans(),
    }
)
step = st.one_of(
    request,
    request,
    st.fixed_dictionaries(
        {
            "do": st.sampled_from(["finish", "finish", "cancel", "preempt", "resume", "progress"]),
            "which": st.integers(0, 5),
            "end": st.sampled_from([{}, {"finished": True}, {"tool_calls": ["grep"]}]),
        }
    ),
    st.fixed_dictionaries({"do": st.just("evict"), "count": st.integers(0, 4)}),
    st.fixed_dictionaries({"do": st.just("advance"), "wait": st.sampled_from([0.5, 3.0, 40.0])}),
    st.fixed_dictionaries(
        {
            "do": st.just("claim"),
            "owner": st.sampled_from(SESSIONS),
            "blocks": st.lists(st.text("xyz", min_size=1, max_size=5), max_size=3),
            "priority": st.sampled_from([None, 10, 90]),
            "retention": st.sampled_from(["normal", "pin", "hold 5s", "drop"]),
        }
    ),
    st.fixed_dictionaries({"do": st.just("release"), "owner": st.sampled_from(SESSIONS)}),
    st.fixed_dictionaries({"do": st.just("split"), "block": st.text("xyz", min_size=1, max_size=5)}),
    st.fixed_dictionaries(
        {
            "do": st.just("event"),
            "name": st.sampled_from(["tool_result", "session_end", "compact", "cancel"]),
            "session": st.sampled_from("ab"),
        }
    ),
    st.fixed_dictionaries({"do": st.just("release_all")}),
)


class Player:
    """Turns what hypothesis draws into steps, and knows which blocks ought to be there."""

    def __init__(self, cpu_blocks: int) -> None:
        self.replay = Replay(POLICY, blocks=12, block_size=2, cpu_blocks=cpu_blocks)
        self.now = 0.0
        self.ids: list[str] = []
        self.made = 0
        self.seen: set[str] = set()

    def step(self, **step: Any) -> Row:
        return self.replay.step({"at": self.now, **step})

    def play(self, drawn: Row) -> Row:
        what = drawn["do"]
        if what == "request":
            self.made += 1
            name = f"r{self.made}"
            hashes = [drawn["words"][: i + 1] for i in range(len(drawn["words"]))]
            self.seen.update(hashes)
            kinds = [KINDS[min(i, 2)] for i in range(len(hashes))]
            spans = [{"kind": kind, "start": 2 * i, "end": 2 * i + 2} for i, kind in enumerate(kinds)]
            self.ids.append(name)
            chunks = {"computed": 2} if drawn["chunks"] else {}
            return self.step(
                do=what, id=name, owner=drawn["owner"], hashes=hashes, spans=spans, key=drawn["key"], **chunks
            )
        if "which" in drawn:
            name = self.ids[drawn["which"] % len(self.ids)] if self.ids else "nobody"
            more = drawn["end"] if what == "finish" else {"computed": 8} if what == "progress" else {}
            return self.step(do=what, id=name, **more)
        if what == "advance":
            self.now += drawn["wait"]
            return self.step(do=what)
        if what == "event":
            return self.step(do=what, event={"event": drawn["name"], "session": drawn["session"]})
        return self.step(**drawn)

    def check(self) -> None:
        pool = self.replay.stage.pool
        check_structure(pool)
        names = self.replay.stage.names
        shown = self.step(do="show", blocks=sorted(self.seen))
        states = {row["block"]: row["state"] for row in shown["blocks"]}
        assert sum(state == "resident" for state in states.values()) == sum(tier.cached for tier in pool.tiers)
        for row in shown["blocks"]:
            assert (row["state"] == "resident") == names.resident(row["block"])
            before = row["block"][:-1]
            if before and row["state"] == "resident":
                assert states[before] == "resident"
        stats = self.step(do="stats")
        assert stats["failures"] == 0
        assert stats["protected"] <= 6


@given(st.lists(step, min_size=1, max_size=25), st.sampled_from([0, 4]))
@settings(max_examples=120)
def test_random_timelines(history: list[Row], cpu_blocks: int) -> None:
    player = Player(cpu_blocks)
    for drawn in history:
        answer = player.play(drawn)
        for hint in answer.get("hints", ()):
            assert hint["status"] in {"accepted", "clipped", "deferred", "ignored", "rejected", "unknown"}
        player.check()
    for name in player.ids:
        player.step(do="finish", id=name)
    player.now += 100_000
    player.step(do="advance")
    left = player.step(do="stats")
    assert {left[key] for key in ("owners", "claims", "protected", "requests_remembered", "timers")} == {0}
    stage = player.replay.stage
    assert not stage.flows and not stage.names.running()
    player.check()
