"""Selectors, conditions and events of a text in their roles: the lowest part of `reader` that knows braces."""

from __future__ import annotations

from collections.abc import Callable

from kvpolicy import words
from kvpolicy.lsp import roles
from kvpolicy.lsp.pieces import NUMBER, STRING, WORD
from kvpolicy.lsp.roles import Wanted
from kvpolicy.lsp.walker import Walker


class SelectorWalker(Walker):
    """What picks spans, and what opens intervals."""

    def opens_statement(self) -> bool:
        """Whether a statement of a file plainly begins here, so that a brace is missing before it."""
        piece, follows = self.next, self.following.text
        begins = piece.kind == WORD and piece.text in words.STATEMENT_WORDS and piece.text != "until"
        return piece.first and begins and follows not in {":", "{"}

    def block(self, inside: Callable[[], None]) -> None:
        """`{ … }`, where it comes."""
        self.may()
        if self.sign("{"):
            inside()
            self.sign("}")

    # --- selectors --------------------------------------------------------------------------------------

    def selector(self) -> None:
        """Matches with commas between them."""
        self.match()
        while self.sign(","):
            self.match()

    def match(self) -> None:
        """`turn[agent = coder]`."""
        self.may(roles.KIND)
        if self.next.kind == WORD and self.next.text not in words.CLAUSE_WORDS:
            self.mark(roles.KIND)
        self.conditions(words.ATTRIBUTES)

    def conditions(self, known: dict[str, str]) -> None:
        """`[agent = coder, tool in {grep, ls}]`, where it comes. known: the attributes that exist there."""
        event = "event" if known is words.EVENT_ATTRIBUTES else ""
        if not self.sign("["):
            return
        while True:
            self.may(Wanted(roles.ATTRIBUTE, event))
            if self.next.kind != WORD:
                break
            attribute = self.mark(roles.ATTRIBUTE, of=event).name
            self.words("in")
            if self.clause("in") and self.sign("{"):
                self.value(attribute)
                while self.sign(","):
                    self.value(attribute)
                self.need("}")
            elif self.next.text in {"=", "!=", "<", "<=", ">", ">="}:
                self.take()
                self.value(attribute)
            if not self.sign(","):
                break
        self.need("]")

    def value(self, attribute: str) -> None:
        """What an attribute is compared with."""
        self.may(Wanted(roles.VALUE, attribute))
        self.sign("-")
        if self.next.kind == NUMBER:
            self.mark(roles.QUANTITY, of=attribute)
        elif self.next.kind in {WORD, STRING}:
            self.mark(roles.VALUE, of=attribute)

    # --- events -----------------------------------------------------------------------------------------

    def event(self) -> None:
        """`tool_call[tool = grep]`."""
        self.may(roles.EVENT)
        if self.next.kind == WORD:
            self.mark(roles.EVENT)
            self.conditions(words.EVENT_ATTRIBUTES)

    def at_most(self) -> None:
        """`at most 2h`, where it comes."""
        if self.clause("at"):
            self.words("most")
            self.may()
            self.clause("most")
            self.expression(plain=())
