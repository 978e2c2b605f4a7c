"""A small world for the laws: policies as text, prompts as lists of words, and ranks worked out the slow way.

`World` drives a `Steering` on the real pool. `expected` goes over every claim of every owner for one block and shares
nothing with the fronts, marks and timers that it checks, but the claims' own values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from hypothesis import strategies as st

from kvpolicy.claims.claim import Claim
from kvpolicy.claims.line import Line
from kvpolicy.claims.strength import DEFAULT, LOWEST, PROTECTED
from kvpolicy.language.load import load_text
from kvpolicy.policy.compile import compile as compile_policy
from kvpolicy.policy.policy import Policy
from kvpolicy.pool import Pool
from kvpolicy.request import Owner, Request, Span
from kvpolicy.steering import Outcome, Steering
from kvpolicy.workflow.events import Event

SIZE = 4  # tokens of a block
SILENT = "policy silent\nscratchpad[name = nobody] { priority: 90 }\n"  # a policy that touches no span here


@cache
def policy(text: str) -> Policy:
    """A policy from its text."""
    loaded = load_text(text)
    assert loaded.files is not None, loaded.diagnostics
    return compile_policy(loaded.files)


def chain(*words: str) -> list[str]:
    """Block hashes of a prompt: each names all words up to its own."""
    return ["/".join(words[: i + 1]) for i in range(len(words))]


def spans(*parts: tuple[str, int]) -> tuple[Span, ...]:
    """Spans of the given kinds and lengths in blocks, one behind the other."""
    made, at = [], 0
    for kind, blocks in parts:
        made.append(Span(kind, at * SIZE, (at + blocks) * SIZE))
        at += blocks
    return tuple(made)


class World:
    """A steering with a clock of its own; requests are named by what they are."""

    def __init__(
        self, text: str | None, blocks: int = 1000, budget: float = 0.4, *, cpu_blocks: int = 0, disk_blocks: int = 0
    ) -> None:
        pool = Pool(blocks, block_size=SIZE, cpu_blocks=cpu_blocks, disk_blocks=disk_blocks)
        self.steering = Steering(None if text is None else policy(text), pool, budget=budget)
        self.now = 0.0
        self.prompts: dict[str, list[str]] = {}
        self.made = 0

    def request(
        self, owner: Owner, words: Sequence[str], parts: tuple[Span, ...] = (), key: str | None = None
    ) -> tuple[str, Outcome]:
        """Start a request for a prompt of one word a block; returns its id and what came of it."""
        self.made += 1
        name = f"r{self.made}"
        hashes = chain(*words)
        self.prompts[name] = hashes
        request = Request(name, owner, len(words) * SIZE, SIZE, parts, key=key)
        return name, self.steering.request(request, hashes, self.now)

    def ask(self, owner: Owner, words: Sequence[str], parts: tuple[Span, ...] = (), **end: object) -> Outcome:
        """A request that ends at once."""
        name, outcome = self.request(owner, words, parts)
        self.finish(name, **end)
        return outcome

    def finish(self, name: str, **end: object) -> None:
        """End a request: `finished=True`, `tool_calls=[…]`."""
        self.steering.finish(name, self.now, **end)  # type: ignore[arg-type]

    def event(self, name: str, **fields: object) -> None:
        """An event now."""
        self.steering.event(Event(self.now, name, fields), self.now)

    def at(self, now: float) -> World:
        """Move the clock there."""
        self.now = now
        self.steering.advance(now)
        return self

    def strengths(self, words: Sequence[str]) -> list[int | None]:
        """The strength of each block of a prompt; None where it is not resident."""
        hashes = chain(*words)
        views = [self.steering.pool.block(hashes, i) for i in range(len(hashes))]
        return [None if view is None else view.rank for view in views]

    def ranks(self, words: Sequence[str]) -> list[int | None]:
        """The ranks of a prompt's blocks, protection left aside; -1 for dropped."""
        return [None if s is None else s - PROTECTED if s >= PROTECTED else s for s in self.strengths(words)]

    def protected(self, words: Sequence[str]) -> int:
        """How many blocks of a prompt are protected."""
        return sum(1 for s in self.strengths(words) if s is not None and s >= PROTECTED)

    def claims_on(self, words: Sequence[str], index: int) -> list[tuple[Line, Claim]]:
        """Every live claim that covers a block, of whomever, worked out claim by claim."""
        hashes = chain(*words)
        found = []
        for holder in self.steering.ledger.holders.values():
            for line in holder.lines():
                prompt = prompt_of(line, self.prompts)
                if prompt[: index + 1] != hashes[: index + 1]:
                    continue
                for claim in line.claims:
                    length = min(claim.length, line.length)
                    if length > index and self.lives(line, claim, prompt, length):
                        found.append((line, claim))
        return found

    def lives(self, line: Line, claim: Claim, prompt: list[str], length: int) -> bool:
        """Whether a claim's clocks still run."""
        if claim.yields:
            return False
        if line.frozen is not None and self.now < line.grace and claim in line.frozen:
            return True
        if claim.ended:
            return False
        if self.now < claim.protected_until:
            return True
        above = claim.priority > DEFAULT and not claim.dropped
        if above and claim.expires <= self.now:
            return False
        view = self.steering.pool.block(prompt, length - 1)
        assert view is not None
        if view.last_release is None:
            return True
        idle_from = max(view.last_release, claim.born)
        if above and claim.ttl is not None and idle_from + claim.ttl <= self.now:
            return False
        return idle_from + claim.max_age > self.now

    def expected(self, words: Sequence[str], index: int) -> int | None:
        """The strength of a block by all claims on it; None where there is no claim."""
        best: int | None = None
        for line, claim in self.claims_on(words, index):
            strength = claim.strength(self.now)
            if line.frozen is not None and self.now < line.grace:
                strength = max(strength, line.frozen.get(claim, strength))
            if strength >= PROTECTED and index >= min(line.granted, claim.granted):
                strength = claim.priority
            if index >= claim.kept:  # beyond a quota on a tier
                strength = min(strength, LOWEST)
            best = strength if best is None else max(best, strength)
        return best

    def check(self) -> None:
        """The pool ranks every block as its claims say, and along every prompt the strength never increases."""
        pool = self.steering.pool
        for prompt in {tuple(p): None for p in self.prompts.values()}:
            words = [h.rsplit("/", 1)[-1] for h in prompt]
            strengths = self.strengths(words)
            last = 10_000
            for index, strength in enumerate(strengths):
                if strength is None:
                    assert all(s is None for s in strengths[index:])
                    break
                assert strength <= last, (words, strengths)
                last = strength
                wanted = self.expected(words, index)
                if wanted is None:
                    assert strength <= DEFAULT
                else:
                    assert strength == wanted, (self.now, words, index, strengths, wanted)
        assert pool.protected_blocks <= self.steering.ledger.budget.blocks
        assert self.steering.counters["failures"] == 0


def prompt_of(line: Line, prompts: dict[str, list[str]]) -> list[str]:
    """The block hashes of the prompt that a line stands on."""
    if line.request is not None:
        return prompts[line.request.id]
    return chain(*str(line.claims[0].proof).split("/"))  # a claim by call: the hash of its end names all words


POLICIES = (
    "policy a\nsystem { priority: 90 }\n",
    "policy b\nsystem, tools { priority: 80 ttl: 30s }\nturn { priority: 20 }\ntool_result { priority: 60 ttl: 5s }\n",
    "policy c\nturn { retention: hold 8s priority: 40 }\nsystem { retention: pin }\ndocument { retention: drop }\n",
    "policy d\nsystem { priority: 70 ttl: 20s fixed }\n"
    "on tool_call until tool_result { turn, tool_result { retention: hold 10s priority: 55 } }\n"
    "on turn_end until turn_start { tool_result { retention: drop } turn { priority: 10 } }\n",
    "policy e\nany { priority: 50 ttl: 6s }\nturn { retention: hold 3s }\n",
    "policy f\non tool_call until tool_result { any { retention: pin } }\n"
    "on session_end { turn { retention: drop } }\n",
)

OWNERS = (
    Owner(session="s1"),
    Owner(session="s2"),
    Owner(session="s1", agent="sub"),
    Owner(tenant="other", session="s1"),
    Owner(),
)
KINDS = ("turn", "tool_result", "document", "scratchpad")

step = st.one_of(
    st.tuples(
        st.just("ask"),
        st.integers(0, 4),
        st.integers(0, 1),
        st.lists(st.integers(0, 11), max_size=5),
        st.integers(0, 2),
    ),
    st.tuples(st.just("open"), st.integers(0, 4), st.integers(0, 1), st.lists(st.integers(0, 11), max_size=5)),
    st.tuples(st.just("close"), st.integers(0, 2)),
    st.tuples(st.just("cancel"), st.just(0)),
    st.tuples(st.just("wait"), st.sampled_from([0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 31.0, 4000.0, 90000.0])),
    st.tuples(
        st.just("event"),
        st.sampled_from(["tool_result", "session_end", "agent_end", "compact", "tool_call"]),
        st.integers(0, 4),
    ),
    st.tuples(st.just("evict"), st.integers(1, 6)),
)
histories = st.lists(step, min_size=1, max_size=25)


def play(world: World, history: list[tuple[object, ...]], after: Callable[[World], None] | None = None) -> None:
    """Play a history; `after` is called behind every step and, on the way, at odd instants of every wait."""
    running: list[str] = []

    def prompt(head: int, tail: list[int]) -> tuple[list[str], tuple[Span, ...]]:
        words = [f"sys{head}a", f"sys{head}b", *(f"w{n}" for n in tail)]
        parts = [("system", 2), *((KINDS[n % 4], 1) for n in tail)]
        return words, spans(*parts)

    for what, *rest in history:
        if what == "ask":
            owner, head, tail, end = rest
            ends = ({"finished": True}, {"tool_calls": ["grep"]}, {})[end]  # type: ignore[call-overload]
            world.ask(OWNERS[owner], *prompt(head, tail), **ends)  # type: ignore[call-overload, arg-type]
        elif what == "open":
            owner, head, tail = rest
            running.append(world.request(OWNERS[owner], *prompt(head, tail))[0])  # type: ignore[call-overload, arg-type]
        elif what == "close" and running:
            world.finish(running.pop(0), **({"finished": True}, {"tool_calls": ["grep"]}, {})[rest[0]])  # type: ignore[call-overload]
        elif what == "cancel" and running:
            world.steering.cancel(running.pop(), world.now)
        elif what == "event":
            owner = OWNERS[rest[1]]  # type: ignore[call-overload]
            world.event(str(rest[0]), tenant=owner.tenant, session=owner.session, agent=owner.agent)
        elif what == "evict":
            world.steering.evict(rest[0], world.now)  # type: ignore[arg-type]
        elif what == "wait":
            start, length = world.now, float(rest[0])  # type: ignore[arg-type]
            for part in (0.1, 0.35, 0.5, 0.999):
                world.at(start + length * part)
                if after is not None:
                    after(world)
            world.at(start + length)
        if after is not None:
            after(world)
