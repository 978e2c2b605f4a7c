"""Every word of a text in its role, however broken the text is, and what could be written at a cursor.

The parser knows what a sound text says; this knows what the words of a half-written one are: it never refuses, and
goes on at whatever plainly begins something. What both can say, they say alike (a test compares them).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvpolicy import words
from kvpolicy.lsp import roles
from kvpolicy.lsp.pieces import CURSOR, END, NUMBER, STRING, WORD, pieces, up_to_cursor
from kvpolicy.lsp.reader_tests import TestWalker
from kvpolicy.lsp.roles import Occurrence, Wanted
from kvpolicy.lsp.walker import AtCursor

_STATEMENTS = tuple(word for word in words.STATEMENT_WORDS if word != "until")


@dataclass(frozen=True, slots=True)
class Reading:
    """The words of a text, by where they stand."""

    found: tuple[Occurrence, ...]

    def at(self, offset: int) -> Occurrence | None:
        """The word at an offset, or the one that ends there."""
        touching = [one for one in self.found if one.start <= offset <= one.end]
        return next((one for one in touching if offset < one.end), touching[0] if touching else None)


def read(text: str) -> Reading:
    """The words of a text, comments left out."""
    walker = _FileWalker(pieces(text))
    walker.file()
    return Reading(tuple(sorted(walker.found, key=lambda one: (one.start, one.end))))


def wanted(text: str, cursor: int) -> tuple[tuple[Wanted, ...], int]:
    """What may stand at a cursor, and where the word that is being typed begins; nothing in comments and strings."""
    front = up_to_cursor(text, cursor)
    if front is None:
        return (), cursor
    walker = _FileWalker(front[0])
    try:
        walker.file()
    except AtCursor:
        return tuple(dict.fromkeys(walker.wanted)), front[1]
    return (), front[1]


class _FileWalker(TestWalker):
    """Statements of a file."""

    def file(self) -> None:
        """All of them."""
        while self.next.kind != END:
            self.may(*(Wanted(roles.STATEMENT, word) for word in (*_STATEMENTS, "language")), roles.KIND)
            before = self.next.start
            self.statement()
            if self.next.start == before:
                self.take()

    def statement(self) -> None:
        """One; nothing is taken where none begins here."""
        piece, follows = self.next, self.following
        if piece.kind == WORD and piece.text == "language" and follows.kind == NUMBER and not follows.first:
            self.mark(roles.STATEMENT)
            self.mark(roles.QUANTITY, of="language")
        elif piece.kind == WORD and piece.text in _STATEMENTS and follows.text != ":":
            begin = len(self.found)
            self.mark(roles.STATEMENT)
            getattr(self, f"_{piece.text}")()
            self.close(begin)
        else:
            self.rule()

    def close(self, begin: int) -> None:
        """The first name that was given from there on has its whole statement up to here."""
        for number in range(begin, len(self.found)):
            if self.found[number].gives:
                self.found[number] = replace(self.found[number], whole=self.last_end)
                return

    # --- the statements ---------------------------------------------------------------------------------

    def _policy(self) -> None:
        self.name(roles.POLICY, gives=True)
        if self.next.kind == STRING:
            self.mark(roles.TEST, of="title")

    def _use(self) -> None:
        self.may(roles.USED)
        is_file = self.next.kind == STRING
        target = self.mark(roles.USED, of="file" if is_file else "packaged") if self.is_name() else None
        group = target.name if target else ""
        self.words("as", "with")
        if self.clause("as"):
            alias = self.name(roles.USED, gives=True)
            group = alias.name if alias else group
            self.words("with")
        if self.clause("with"):
            while True:
                self.may(Wanted(roles.LET, of=f"use {target.name if target else ''}"))
                if self.next.kind != WORD:
                    return
                self.mark(roles.LET, of=f"use {group}")
                self.need("=")
                self.expression()
                if not self.sign(","):
                    return

    def _layers(self) -> None:
        while self.name(roles.LAYER, of="layers") is not None and self.sign(","):
            pass

    def _let(self) -> None:
        if self.next.kind == WORD:
            self.mark(roles.LET, gives=True)
        self.need("=")
        self.expression()

    def _layer(self) -> None:
        self.name(roles.LAYER, gives=True)
        self.block(lambda: self.rules(("on",)))

    def _on(self) -> None:
        self.on()

    def _limit(self) -> None:
        self.limit()

    def _test(self) -> None:
        self.test()

    def _workflow(self) -> None:
        given = self.mark(roles.WORKFLOW, gives=True) if self.is_name() else None
        name = given.name if given else ""
        self.block(lambda: self._graph(name))

    def _graph(self, workflow: str) -> None:
        """Nodes, chains and loops."""
        begins = (*words.WORKFLOW_WORDS, "workflow")
        while self.next.kind != END and self.next.text != "}":
            self.may(*(Wanted(roles.CLAUSE, word) for word in begins), Wanted(roles.NODE, workflow))
            piece, follows = self.next, self.following
            if piece.kind == WORD and piece.text in begins and follows.kind in {WORD, STRING, CURSOR}:
                if piece.text == "workflow" and self._block_comes():
                    return
                self.mark(roles.CLAUSE)
                if piece.text == "loop":
                    self._chain(workflow)
                    continue
                while True:
                    self._node(workflow, nested=piece.text == "workflow")
                    if not self.sign(","):
                        break
            elif self.is_name():
                if self.opens_statement():
                    return
                self._chain(workflow)
            else:
                self.take()

    def _block_comes(self) -> bool:
        """Whether `workflow NAME {` comes: a `}` is missing in front."""
        return self.following.kind != CURSOR and self.after(2).text == "{"

    def _node(self, workflow: str, *, nested: bool) -> None:
        """`planner`, `checker of writer`, `lib.research as first`."""
        if nested:
            begin = len(self.found)
            self.path(roles.WORKFLOW)
            self.words("as", "of")
            if self.clause("as"):
                self.name(roles.NODE, gives=True, of=workflow)
            elif len(self.found) > begin:  # its name is the node's, too
                self.found.append(replace(self.found[-1], role=roles.NODE, gives=True, of=workflow))
        else:
            self.may()
            if not self.is_name():
                return
            self.mark(roles.NODE, gives=True, of=workflow)
        self.words("of")
        if self.clause("of"):
            self.may(Wanted(roles.NODE, workflow))
            if self.is_name():
                self.mark(roles.NODE, of=workflow)

    def _chain(self, workflow: str) -> None:
        """`a -> b * n 30% at most 3 -> c`."""
        while True:
            self.may(Wanted(roles.NODE, workflow))
            if not self.is_name():
                return
            self.mark(roles.NODE, of=workflow)
            if self.sign("*") and self.next.kind in {WORD, NUMBER, STRING}:
                self.mark(roles.VALUE, of="times")
            if self.next.kind == NUMBER:
                self.mark(roles.QUANTITY, of="probability")
            self.words("at")
            if self.clause("at"):
                self.words("most")
                self.may()
                self.clause("most")
                if self.next.kind == NUMBER:
                    self.mark(roles.QUANTITY)
            if not self.sign("->"):
                return
