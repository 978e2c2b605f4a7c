"""Rules and their properties in their roles: a part of `reader`."""

from __future__ import annotations

from dataclasses import replace

from kvpolicy import words
from kvpolicy.lsp import roles
from kvpolicy.lsp.pieces import END, WORD
from kvpolicy.lsp.reader_selectors import SelectorWalker
from kvpolicy.lsp.roles import Wanted

WORDS_OF: dict[str, tuple[str, ...]] = {
    "priority": (),
    "retention": ("normal", "drop", "pin", "hold"),
    "ttl": (),
    "for": words.LIFETIMES,
    "tier": words.TIERS,
    "prefetch": ("yes", "no"),
    "admit": ("yes", "no"),
    "replicas": ("all",),
    "place": words.PLACES,
    "share": words.SHARES,
}
TIER_WORDS = frozenset((*words.TIERS, *words.TIER_ALIASES))


class RuleWalker(SelectorWalker):
    """Rules, the intervals around them, and what they set."""

    def rules(self, statements: tuple[str, ...]) -> None:
        """The rules of a `layer` or an `on`."""
        while self.next.kind != END and self.next.text != "}":
            self.may(*(Wanted(roles.STATEMENT, word) for word in statements), roles.KIND)
            if self.opens_statement() and self.next.text not in statements:
                return
            before = self.next.start
            if "on" in statements and self.next.text == "on" and self.next.kind == WORD:
                self.mark(roles.STATEMENT)
                self.on()
            else:
                self.rule()
            if self.next.start == before:
                self.take()

    def rule(self) -> None:
        """`label: selector over other when guard { … }`."""
        label = None
        if self.following.text == ":" and self.is_name():
            label = len(self.found)
            self.mark(roles.RULE, gives=True)
            self.sign(":")
        begin = self.next.start
        self.selector()
        if self.next.start == begin:
            return
        self.words("over", "when")
        if self.clause("over"):
            self.path(roles.RULE)
            while self.sign(","):
                self.path(roles.RULE)
            self.words("when")
        if self.clause("when"):
            self.expression()
        self.block(lambda: self.declarations(expected=False))
        if label is not None:
            self.found[label] = replace(self.found[label], whole=self.last_end)

    def on(self) -> None:
        """`EVENT until EVENT at most 2h { rules }`, behind `on`."""
        self.event()
        self.words("until", "at")
        if self.clause("until"):
            self.event()
            self.words("at")
        self.at_most()
        self.block(lambda: self.rules(()))

    # --- properties -------------------------------------------------------------------------------------

    def declarations(self, expected: bool) -> None:
        """`priority: 80  ttl: 5min`."""
        while self.next.kind != END and self.next.text != "}":
            self.may(roles.PROPERTY)
            if self.next.kind != WORD or self.following.text != ":":
                if self.opens_statement():
                    return
                self.take()
                continue
            name = self.mark(roles.PROPERTY).name
            self.sign(":")
            self.setting(name)
            if expected:
                self.words("by")
                if self.clause("by"):
                    self.path(roles.RULE)

    def setting(self, name: str) -> None:
        """The value of a property."""
        own = (*WORDS_OF.get(name, ()), "default")
        if name == "retention" and self.next.text == "hold":
            self._hold()
            return
        if name == "tier":
            own = (*own, *words.TIER_ALIASES)
        if name in {"for", "place", "share", "retention", "tier"}:
            self.may(*(Wanted(roles.CONSTANT, word, (name,)) for word in own if word not in words.TIER_ALIASES))
            if self.next.kind == WORD and self.following.text != ":":
                known = self.next.text in own
                self.mark(
                    roles.TIER if self.next.text in TIER_WORDS else roles.CONSTANT if known else roles.LET, of=name
                )
        else:
            self.expression(of=name, plain=own if name in words.PROPERTIES else ("default",))
        if name == "ttl":
            self.words("fixed")
        if name == "ttl" and self.clause("fixed"):
            return
        if name == "tier":
            self._rungs()

    def _hold(self) -> None:
        """`hold 30s`, `hold until tool_result at most 10min`."""
        self.mark(roles.CONSTANT, of="retention")
        self.words("until")
        if self.clause("until"):
            self.event()
            self.words("at")
            self.at_most()
        else:
            self.expression(plain=())

    def _rungs(self) -> None:
        """What follows the first tier of a ladder: `after 30s, disk after 10min`."""
        while True:
            self.words("after")
            if self.clause("after"):
                self.expression(plain=())
            if not self.sign(","):
                return
            self.may(*(Wanted(roles.CONSTANT, word, ("tier",)) for word in words.TIERS))
            if self.next.kind == WORD:
                self.mark(roles.TIER, of="tier")
