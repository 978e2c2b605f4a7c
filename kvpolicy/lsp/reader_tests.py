"""Limits and tests of a text in their roles: a part of `reader`."""

from __future__ import annotations

from kvpolicy import words
from kvpolicy.lsp import roles
from kvpolicy.lsp.pieces import END, STRING, WORD
from kvpolicy.lsp.reader_rules import TIER_WORDS, RuleWalker
from kvpolicy.lsp.roles import Wanted

BOUNDED = ("priority", "ttl", "replicas", "hold", *words.TIERS)
_STEPS = ("given", "assume", "at", "then", "expect")


class TestWalker(RuleWalker):
    """Statements that hold no rules."""

    def limit(self) -> None:
        """`any per tenant { hold: at most 40% of gpu }`, behind `limit`."""
        self.selector()
        self.words("per")
        if self.clause("per"):
            self.may(Wanted(roles.CONSTANT, "tenant", ("per",)), Wanted(roles.CONSTANT, "session", ("per",)))
            if self.next.kind == WORD:
                self.mark(roles.CONSTANT, of="per")
        self.block(self._bounds)

    def _bounds(self) -> None:
        while self.next.kind != END and self.next.text != "}":
            self.may(*(Wanted(roles.PROPERTY, word) for word in BOUNDED))
            if self.next.kind != WORD or self.following.text != ":":
                if self.opens_statement():
                    return
                self.take()
                continue
            self.mark(roles.TIER if self.next.text in TIER_WORDS else roles.PROPERTY, of="limit")
            self.sign(":")
            self.words("at")
            self.may()
            if self.clause("at"):
                self.words("most", "least")
                self.may()
                if not self.clause("most"):
                    self.clause("least")
            self.expression(plain=())
            self.words("of")
            if self.clause("of"):
                self.may(roles.TIER)
                if self.next.kind == WORD:
                    self.mark(roles.TIER)

    def test(self) -> None:
        """`"name" { steps }`, behind `test`."""
        if self.next.kind == STRING:
            self.mark(roles.TEST, gives=True)
        self.block(self._steps)

    def _steps(self) -> None:
        while self.next.kind != END and self.next.text != "}":
            self.may(*(Wanted(roles.CLAUSE, word) for word in _STEPS))
            step = self.next.text
            if self.next.kind != WORD or step not in _STEPS:
                if self.opens_statement():
                    return
                self.take()
                continue
            self.mark(roles.CLAUSE)
            getattr(self, f"_{step}")()

    def _given(self) -> None:
        self.selector()

    def _assume(self) -> None:
        self.may(roles.FUNCTION)
        if self.next.kind == WORD and self.following.text == "(":
            self.call(0)
        if self.sign("="):
            self.expression(plain=("nothing", "never", "yes", "no"), sum_only=True)
        self.words("for")
        if self.clause("for"):
            self.match()

    def _at(self) -> None:
        self.event()

    def _then(self) -> None:
        self.expression(plain=())

    def _expect(self) -> None:
        self.match()
        self.block(lambda: self.declarations(expected=True))
