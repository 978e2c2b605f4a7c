"""Long random histories: requests at once, claims by call, preemption, operators, tiers and quotas, all laws checked.

After every step, and at odd instants of every wait, each block ranks as all claims on it say, worked out claim by
claim; ranks never increase along a prompt; the pool is consistent; and at the end nothing is left behind.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kvpolicy.claims.strength import PROTECTED
from kvpolicy.directive import DROP, HOLD, PIN, Retention, Ttl
from kvpolicy.steering.calls import Wish
from tests.laws.world import KINDS, OWNERS, POLICIES, World, chain, prompt_of, spans
from tests.pool.structure import check_structure

MORE = (
    *POLICIES,
    "policy g\nturn { retention: hold until step_start at most 40s priority: 50 }\nsystem { retention: pin }\n"
    "on step_start until step_end { tool_result { priority: 70 ttl: 9s } document { retention: drop } }\n",
    "policy h\nany { retention: pin priority: 60 }\nlimit any { hold: at most 50% of gpu }\n"
    "limit turn per session { hold: at most 20% of gpu }\n",
    "policy i\nsystem { priority: 80 for: session }\nturn { priority: 60 for: request }\n"
    "tool_result { priority: 70 ttl: 4s fixed for: run }\nscratchpad { retention: drop }\n",
    "policy j\nturn { priority: 45 tier: gpu, cpu after 3s, disk after 10s }\ndocument { admit: no }\n"
    "on step_start { turn { prefetch: yes } }\ntool_result { priority: 65 prefetch: 2s tier: cpu, disk after 5s }\n",
    "policy l\nturn { priority: 60 tier: gpu, cpu after 4s }\nsystem { retention: hold 9s priority: 70 }\n"
    "limit any per session { gpu: at most 0.02k }\nlimit turn { cpu: at most 30% }\n",
    "policy m\ntool_result { priority: 70 retention: hold 5s }\nturn { priority: 20 retention: pin }\n"
    "limit any { gpu: at most 40% }\nlimit turn per tenant { hold: at most 20% of gpu }\n",
    "policy k\nturn when idle() < 5s { priority: 70 }\nsystem { priority: 80 ttl: 20s }\n"
    "layer later { turn when pressure(gpu) > 40% { priority: 20 } }\n",
)

WISHES = (
    Wish(priority=80, ttl=Ttl(6.0)),
    Wish(priority=90, ttl=Ttl(15.0, fixed=True)),
    Wish(priority=10),
    Wish(priority=50, retention=Retention(HOLD, 7.0)),
    Wish(retention=Retention(PIN), max_age=50.0),
    Wish(retention=Retention(DROP)),
    Wish(priority=60, retention=Retention(HOLD, until="step_end", at_most=30.0)),
)

tail = st.lists(st.integers(0, 11), max_size=6)
owner = st.integers(0, len(OWNERS) - 1)
step = st.one_of(
    st.tuples(st.just("ask"), owner, st.integers(0, 1), tail, st.integers(0, 2)),
    st.tuples(st.just("open"), owner, st.integers(0, 1), tail, st.booleans()),
    st.tuples(st.sampled_from(["close", "cancel", "preempt", "resume", "grow"]), st.integers(0, 4), st.integers(0, 2)),
    st.tuples(st.just("wait"), st.sampled_from([0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 31.0, 4000.0, 90000.0])),
    st.tuples(
        st.just("event"),
        st.sampled_from(
            [
                "tool_result",
                "session_end",
                "agent_end",
                "compact",
                "tool_call",
                "step_start",
                "step_end",
                "workflow_end",
            ]
        ),
        owner,
    ),
    st.tuples(st.just("evict"), st.integers(1, 6)),
    st.tuples(st.just("claim"), owner, st.integers(0, 9), st.integers(0, len(WISHES) - 1), st.integers(0, 3)),
    st.tuples(st.just("release"), owner),
    st.tuples(st.just("release_all")),
)


class Player:
    """Carries out steps on a world, whatever runs."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.open: list[str] = []

    def check(self) -> None:
        """All that has to hold at every instant."""
        self.world.check()
        check_structure(self.world.steering.pool)
        self._check_limits()
        self._check_quotas()

    def _check_limits(self) -> None:
        """What the claims of a group protect fits into its limit, each charged with its whole prefix."""
        ledger = self.world.steering.ledger
        for limit in ledger.budget.limits:
            charged: dict[object, dict[int, int]] = {}
            for line in (line for holder in ledger.holders.values() for line in holder.lines()):
                for length, strength, claim in line.pieces:
                    group = limit.group(line, claim) if strength >= PROTECTED else None
                    if group is not None:
                        lines = charged.setdefault(group, {})
                        lines[id(line)] = max(lines.get(id(line), 0), min(length, line.length))
            assert all(sum(lines.values()) <= limit.blocks for lines in charged.values()), (limit.name, charged)

    def _check_quotas(self) -> None:
        """What the claims of a group cover of a tier, without being cut there, fits into its share."""
        ledger, pool = self.world.steering.ledger, self.world.steering.pool
        for share in () if ledger.quotas is None else ledger.quotas.shares:
            covered: dict[object, set[object]] = {}
            for line in (line for holder in ledger.holders.values() for line in holder.lines()):
                prompt = prompt_of(line, self.world.prompts)
                for claim in line.claims:
                    group = share.group(line, claim)
                    if group is None or claim.ended or claim.yields or claim.dropped:
                        continue
                    for index in range(int(min(claim.length, line.length, claim.kept))):
                        view = pool.block(prompt, index)
                        if view is not None and view.tier == share.tier:
                            covered.setdefault(group, set()).add(prompt[index])
            assert all(len(blocks) <= share.blocks for blocks in covered.values()), (share.name, covered)

    def play(self, what: str, *rest: object) -> None:
        """One step."""
        getattr(self, f"_{what}")(*rest)
        self.check()

    def _prompt(self, head: int, tail: list[int]) -> tuple[list[str], tuple[object, ...]]:
        words = [f"sys{head}a", f"sys{head}b", *(f"w{n}" for n in tail)]
        return words, spans(("system", 2), *((KINDS[n % 4], 1) for n in tail))

    def _ask(self, who: int, head: int, tail: list[int], end: int) -> None:
        self.world.ask(OWNERS[who], *self._prompt(head, tail), **_END[end])  # type: ignore[arg-type]

    def _open(self, who: int, head: int, tail: list[int], retry: bool) -> None:
        key = f"{who}{head}{tail}" if retry else None
        name, _ = self.world.request(OWNERS[who], *self._prompt(head, tail), key=key)  # type: ignore[arg-type]
        self.open.append(name)

    def _one(self, which: int) -> str:
        return self.open[which % len(self.open)] if self.open else "nobody"

    def _close(self, which: int, end: int) -> None:
        self.world.finish(self._one(which), **_END[end])

    def _cancel(self, which: int, end: int) -> None:
        self.world.steering.cancel(self._one(which), self.world.now)

    def _preempt(self, which: int, end: int) -> None:
        self.world.steering.preempt(self._one(which), self.world.now)

    def _resume(self, which: int, end: int) -> None:
        self.world.steering.resume(self._one(which), self.world.now)

    def _grow(self, which: int, end: int) -> None:
        name = self._one(which)
        running = self.world.steering.running.get(name)
        if running is not None and not running.lease.released:
            prompt = self.world.prompts[running.request.id]
            more = [f"{prompt[-1]}/out{end}"]
            if more[0] not in prompt:
                prompt += more
                self.world.steering.progress(name, self.world.now, hashes=more)

    def _wait(self, seconds: float) -> None:
        start = self.world.now
        for part in (0.1, 0.35, 0.5, 0.999):
            self.world.at(start + seconds * part)
            self.check()
        self.world.at(start + seconds)

    def _event(self, name: str, who: int) -> None:
        each = OWNERS[who]
        self.world.event(name, tenant=each.tenant, session=each.session, agent=each.agent, tool="grep")

    def _evict(self, count: int) -> None:
        self.world.steering.evict(count, self.world.now)

    def _claim(self, who: int, which: int, wish: int, shorter: int) -> None:
        prompts = list(self.world.prompts.values())
        if prompts:
            prompt = prompts[-1 - which % len(prompts)]
            hashes = prompt[: max(1, len(prompt) - shorter)]
            self.world.steering.claim(OWNERS[who], chain(*hashes[-1].split("/")), self.world.now, WISHES[wish])

    def _release(self, who: int) -> None:
        self.world.steering.release(OWNERS[who], self.world.now)

    def _release_all(self) -> None:
        self.world.steering.release_all(self.world.now)
        assert self.world.steering.pool.protected_blocks == 0


_END: tuple[dict[str, object], ...] = ({"finished": True}, {"tool_calls": ["grep"]}, {})


@given(
    st.sampled_from(MORE),
    st.lists(step, min_size=1, max_size=40),
    st.sampled_from([(1000, 0, 0), (14, 0, 0), (9, 5, 6)]),
)
@settings(max_examples=100)
def test_ranks_are_what_the_claims_say(
    text: str, history: list[tuple[object, ...]], sizes: tuple[int, int, int]
) -> None:
    player = Player(World(text, sizes[0], cpu_blocks=sizes[1], disk_blocks=sizes[2]))
    for what, *rest in history:
        player.play(str(what), *rest)
    for name in player.open:
        player.world.finish(name)
    world = player.world
    world.at(world.now + 100_000)
    world.at(world.now + 4_000)
    player.check()
    assert not world.steering.ledger.holders and not world.steering.running
    assert not world.steering.state.owners()
    assert len(world.steering.ledger.timers) == 0
