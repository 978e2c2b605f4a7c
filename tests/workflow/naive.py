"""An obviously right reading of one owner's phases and intervals: every question is answered from the whole history.

Shares nothing with the product but the pattern classes and the word tables.
"""

from __future__ import annotations

from kvpolicy import words
from kvpolicy.policy.model import EventPattern, IntervalPattern

TARGET = words.PHASE_AFTER


def fits(pattern: EventPattern, facts: dict) -> bool:
    """Conditions of the tests are equalities only."""
    return pattern.name == facts["name"] and all(facts.get(a) in values for a, _, values in pattern.conditions)


class Reading:
    """Walks a history of ("arrive", t) ("touched", t) ("answer", t, calls, finished) ("event", t, name, facts)."""

    def __init__(self, pattern: IntervalPattern, history: list, now: float) -> None:
        self.pattern = pattern
        self.phase, self.since = "idle", 0.0
        self.calls: list[dict] = []
        self.returned: set = set()
        self.seen: set = set()
        self.open: list[dict] = []
        self.linger: tuple[float, float] | None = None
        self.running = 0
        self.lived = self.asked = self.latest = self.end = 0.0
        self.meanwhile: tuple[float, str] | None = None  # the latest event while calls were open
        self.resumed = 0.0
        self.quiet: float | None = None
        for step in history:
            self.sleep(step[1])
            getattr(self, step[0])(*step[1:])
        self.sleep(now)

    # what is asked
    def opening(self) -> tuple[float, float | None] | None:
        """(opened at, end of the grace)."""
        if self.open:
            return self.open[-1]["at"], None
        return self.linger

    # what happens
    def sleep(self, now: float) -> None:
        if self.quiet is not None and self.quiet <= now:
            at, self.quiet = self.quiet, None
            if self.running == 0 and self.phase == "running":
                self.go("idle", at, None)
        if self.linger is not None and self.linger[1] <= now:
            self.linger = None

    def arrive(self, t: float) -> None:
        self.running += 1
        self.quiet = None
        self.lived, self.asked, self.latest = max(self.lived, t), max(self.asked, t), max(self.latest, t)
        if self.phase == "tool_pause":
            for call in list(self.calls):
                self.meanwhile = None
                self.result(t, call, {"name": "tool_result", **call})
        elif self.phase == "human_pause":
            self.event(t, "turn_start", {})
        else:
            self.go("running", t, None)

    def touched(self, t: float) -> None:
        self.linger = None

    def answer(self, t: float, calls: list, finished: bool | None) -> None:
        self.running -= 1
        for tool, call in calls:
            self.event(t, "tool_call", {"tool": tool, "call": call})
        if calls or self.running:
            return
        if finished:
            self.event(t, "turn_end", {})
        elif self.phase == "running":
            self.quiet = t + 2.0

    def event(self, t: float, name: str, facts: dict) -> None:
        facts = {"name": name, **{k: v for k, v in facts.items() if v is not None}}
        target = TARGET.get(name)
        revives = name in ("branch_start", "resume")
        if self.phase == "ended" and target not in (None, "ended") and not revives:
            if not name.startswith("tool_"):
                self.keep(t, target)
            return
        if revives:
            self.lived = max(self.lived, t)
        if name == "tool_call":
            self.call(t, facts)
        elif name == "tool_result":
            self.find_result(t, facts)
        elif target is None:
            self.close_until(facts, None)
            self.start(t, facts, None, news=True)
        else:
            self.move(t, name, facts, target)
        if self.phase == "ended":
            self.linger = None

    def keep(self, t: float, target: str) -> None:
        if self.meanwhile is None or t >= self.meanwhile[0]:
            self.meanwhile = t, target

    def move(self, t: float, name: str, facts: dict, target: str) -> None:
        """An event that is not of a call, and moves the phase unless it is older than what has moved it since."""
        if target == "ended":
            if t < self.lived:
                return
            if self.phase != "ended":
                self.meanwhile = (self.latest, self.phase) if self.latest > t else None
            self.end = max(self.end, t)
            self.calls = []
            self.go("ended", t, name, facts)
        elif self.phase == "ended":
            if t < self.end:
                return
            later, self.meanwhile = self.meanwhile, None
            if later is not None and later[0] > t:
                self.go(later[1], later[0], name, facts)
            else:
                self.go(target, t, name, facts)
        elif t < self.latest:
            return
        elif self.calls:
            self.keep(t, target)
            self.go("tool_pause", t, name, facts)
        else:
            self.go(target, t, name, facts)
        self.announce(t, facts, target)

    def call(self, t: float, facts: dict) -> None:
        call = {"tool": facts.get("tool"), "call": facts.get("call")}
        known = [c["call"] for c in self.calls] + list(self.returned)
        if call["call"] is not None and call["call"] in known:
            return
        if t < self.asked:
            return
        later = (self.latest, self.phase) if t < self.latest and self.phase != "tool_pause" else None
        self.calls.append(call)
        self.go("tool_pause", t, "tool_call", facts)
        self.meanwhile = later or self.meanwhile
        self.start(t, facts, call, news=True)

    def find_result(self, t: float, facts: dict) -> None:
        wanted, tool = facts.get("call"), facts.get("tool")
        if wanted is not None and wanted in self.returned:
            return
        by_id = [c for c in self.calls if wanted is not None and c["call"] == wanted]
        by_tool = [
            c
            for c in self.calls
            if (wanted is None or c["call"] is None) and (tool is None or c["tool"] is None or c["tool"] == tool)
        ]
        match = (by_id or by_tool or [None])[0]
        if match is None and wanted is not None:
            self.returned.add(wanted)
        if match is not None:
            self.result(t, match, {**{k: v for k, v in match.items() if v is not None}, **facts})
        elif not self.calls and self.phase != "human_pause" and t >= self.latest:
            self.go("running", t, "tool_result", facts)
            self.announce(t, facts, "running")

    def result(self, t: float, call: dict, facts: dict) -> None:
        self.calls = [c for c in self.calls if c is not call]
        if call["call"] is not None:
            self.returned.add(call["call"])
        self.resumed = max(self.resumed, t)
        if not self.calls and self.meanwhile is not None and self.meanwhile[0] > self.resumed:
            self.go(self.meanwhile[1], self.meanwhile[0], "tool_result", facts, call)
        else:
            self.go("tool_pause" if self.calls else "running", t, "tool_result", facts, call)
        self.announce(t, facts, "running")

    def go(self, phase: str, t: float, name: str | None, facts: dict | None = None, closed: dict | None = None) -> None:
        """Into a phase: what `until` closes, then what the phase before had opened."""
        moved = phase != self.phase
        if moved or name is not None:
            self.latest = max(self.latest, t)
        if facts is not None:
            self.close_until(facts, closed, t)
        if moved:
            at = self.resumed if phase == "running" and self.phase == "tool_pause" and name == "tool_result" else t
            self.phase, self.since, self.seen = phase, max(at, self.since), set()
            if phase == "tool_pause":
                self.meanwhile, self.resumed = None, t
            self.quiet = None
            gone = [row for row in self.open if row["by_phase"]]
            self.remove(gone, t, name)

    def close_until(self, facts: dict, closed: dict | None, t: float = 0.0) -> None:
        until = self.pattern.until
        if until is None:
            gone = [row for row in self.open if closed is not None and row["call"] is closed]
        elif fits(until, facts):
            gone = [row for row in self.open if row["call"] is None or row["call"] is closed]
        else:
            gone = []
        self.remove(gone, t, facts["name"])

    def remove(self, gone: list[dict], t: float, name: str | None) -> None:
        if gone:
            self.open = [row for row in self.open if all(row is not g for g in gone)]
            if name in ("tool_result", "turn_start"):
                self.linger = (gone[-1]["at"], t + 30.0)

    def announce(self, t: float, facts: dict, target: str) -> None:
        """A phase event opens if its phase is the owner's, and if this phase has not seen it yet."""
        news = self.phase == target and facts["name"] not in self.seen
        if news:
            self.seen.add(facts["name"])
        self.start(t, facts, None, news)

    def start(self, t: float, facts: dict, call: dict | None, news: bool) -> None:
        if not news or not fits(self.pattern.start, facts):
            return
        bound = self.pattern.until is None or self.pattern.until.name == "tool_result"
        by_phase = facts["name"] in TARGET
        self.open.append({"at": t, "call": call if bound else None, "by_phase": by_phase})
