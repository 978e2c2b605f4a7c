"""Walking along the pieces of a text: look at the next one, take it, say what it is; the parts of names and values.

The lower half of `reader`. Where the cursor is met, what could stand there is noted and the walk is over.
"""

from __future__ import annotations

from kvpolicy import words
from kvpolicy.lsp import roles
from kvpolicy.lsp.pieces import CURSOR, END, NUMBER, STRING, WORD, Piece
from kvpolicy.lsp.roles import Occurrence, Wanted

_OPERATORS = frozenset({"+", "-", "*", "/", "=", "!=", "<", "<=", ">", ">="})
_WORD_OPERATORS = frozenset({"and", "or", "else"})
_DEEPEST = 100  # open parentheses
_STOP = frozenset((*words.STATEMENT_WORDS, *words.CLAUSE_WORDS, *words.TEST_WORDS)) - {"not"}
_PLAIN = ("yes", "no", "never")


class AtCursor(Exception):  # no fault: the walk has come to where it was going
    """The cursor was met."""


class Walker:
    """A walk. `found`: the words met, in order; `wanted`: what could stand at the cursor."""

    def __init__(self, pieces: list[Piece]) -> None:
        self._pieces = pieces
        self._here = 0
        self.found: list[Occurrence] = []
        self.wanted: list[Wanted] = []

    # --- one piece --------------------------------------------------------------------------------------

    @property
    def next(self) -> Piece:
        """The piece that comes."""
        return self._pieces[self._here]

    @property
    def following(self) -> Piece:
        """The piece behind it."""
        return self._pieces[min(self._here + 1, len(self._pieces) - 1)]

    def after(self, many: int) -> Piece:
        """The piece that comes so many later; the last one where there are no more."""
        return self._pieces[min(self._here + many, len(self._pieces) - 1)]

    @property
    def last_end(self) -> int:
        """Where the piece in front ends."""
        return self._pieces[self._here - 1].end if self._here else 0

    def may(self, *wanted: Wanted | str) -> None:
        """Say what may stand here: the walk ends where the cursor is here."""
        if self.next.kind == CURSOR:
            self.wanted += [Wanted(one) if isinstance(one, str) else one for one in wanted]
            raise AtCursor

    def words(self, *listed: str) -> None:
        """Say which words of the language may stand here, besides what may come without them."""
        if self.next.kind == CURSOR:
            self.wanted += [Wanted(roles.CLAUSE, word) for word in listed]

    def need(self, text: str) -> None:
        """Go past a sign that has to come; nothing else may stand here."""
        self.may()
        self.sign(text)

    def take(self) -> Piece:
        """Go past the piece; the last one stays."""
        piece = self.next
        if piece.kind not in {END, CURSOR}:
            self._here += 1
        return piece

    def sign(self, text: str) -> bool:
        """Go past a sign if it is the one that comes."""
        if self.next.text == text and self.next.kind != STRING:
            self.take()
            return True
        return False

    def clause(self, text: str) -> bool:
        """Go past a word of the language if it is the one that comes."""
        if self.next.text == text and self.next.kind == WORD:
            self.mark(roles.CLAUSE)
            return True
        return False

    def mark(self, role: str, **more: object) -> Occurrence:
        """Take the piece in this role."""
        piece = self.take()
        name = unquoted(piece.text) if piece.kind == STRING else piece.text
        one = Occurrence(role, name, piece.start, piece.end, **{"path": (name,), **more})  # type: ignore[arg-type]
        if piece.kind not in {END, CURSOR}:
            self.found.append(one)
        return one

    def is_name(self) -> bool:
        """Whether a name comes."""
        return self.next.kind in {STRING, WORD}

    # --- names ------------------------------------------------------------------------------------------

    def name(self, role: str, **more: object) -> Occurrence | None:
        """A name, where one comes."""
        self.may(Wanted(role))
        return self.mark(role, **more) if self.is_name() else None

    def path(self, role: str) -> None:
        """`name.name`: the last part has the role, those in front say where it is looked for."""
        parts: list[Piece] = []
        before: tuple[str, ...] = ()
        while True:
            self.may(Wanted(role, before=before))
            if not self.is_name():
                break
            parts.append(self.take())
            before = tuple(_name_of(part) for part in parts)
            if not self.sign("."):
                break
        self.parts(parts, role)

    def parts(self, parts: list[Piece], role: str) -> None:
        """Note the parts of a dotted name."""
        names = tuple(_name_of(part) for part in parts)
        for number, part in enumerate(parts):
            last = number == len(parts) - 1
            path, own = names[: number + 1], names if last else names[: number + 1]
            self.found.append(
                Occurrence(role if last else roles.USED, names[number], part.start, part.end, own or path, of=role)
            )

    # --- values -----------------------------------------------------------------------------------------

    def expression(
        self, *, of: str = "", depth: int = 0, plain: tuple[str, ...] = _PLAIN, sum_only: bool = False
    ) -> None:
        """Operands with operators between them. of: the property or function whose value it is; plain: words that may
        stand instead of a value."""
        while True:
            while self.sign("-") or self.clause("not"):
                pass
            if not self.operand(of, depth, plain):
                return
            self.words("else", *(() if sum_only else ("and", "or")))
            sign = self.next.text
            if self.next.kind == WORD and sign in _WORD_OPERATORS and not (sum_only and sign != "else"):
                self.mark(roles.CLAUSE)
            elif self.next.kind != STRING and sign in _OPERATORS:
                self.take()
            else:
                return

    def operand(self, of: str, depth: int, plain: tuple[str, ...]) -> bool:
        """One operand; False where none comes."""
        self.may(
            *(Wanted(roles.CONSTANT, word) for word in plain), roles.LET, roles.FUNCTION, *((roles.SERIES,) if of in
            words.FUNCTIONS else ()),
        )  # fmt: skip
        piece = self.next
        if piece.kind in {NUMBER, STRING}:
            self.mark(roles.QUANTITY if piece.kind == NUMBER else roles.VALUE)
            return True
        if self.sign("("):
            if depth < _DEEPEST:
                self.expression(depth=depth + 1)
            self.need(")")
            return True
        if piece.kind != WORD or piece.text in _STOP:
            return False
        if self.following.text == "(":
            self.call(depth)
        else:
            self.dotted(of, plain)
        return True

    def dotted(self, of: str, plain: tuple[str, ...]) -> None:
        """A name that is no call: a word of the property's own, a series, or a `let`."""
        parts = [self.take()]
        while self.next.text == "." and self.next.start == parts[-1].end:
            self.take()
            before = tuple(part.text for part in parts)
            self.may(Wanted(roles.LET, before=before), Wanted(roles.SERIES, before=before))
            if self.next.kind != WORD:
                break
            parts.append(self.take())
        whole = ".".join(part.text for part in parts)
        if whole in words.SERIES:
            self.found.append(Occurrence(roles.SERIES, whole, parts[0].start, parts[-1].end, (whole,)))
        elif len(parts) == 1 and whole in plain:
            self.found.append(Occurrence(roles.CONSTANT, whole, parts[0].start, parts[0].end, (whole,), of=of))
        else:
            self.parts(parts, roles.LET)

    def call(self, depth: int) -> None:
        """`p95(tool.duration)`: what stands in the parentheses depends on the function."""
        function = self.mark(roles.FUNCTION).name
        self.sign("(")
        takes = words.FUNCTIONS.get(function, ((), "", False))[0]
        role = {"kind": roles.KIND, "tier": roles.TIER, "event": roles.EVENT}.get(takes[0] if takes else "")
        if any(argument.startswith("within") for argument in takes):
            self.words("within")
        if self.clause("within"):
            self.expression(depth=depth + 1)
        elif role is not None:
            self.may(role)
            if self.next.kind == WORD:
                self.mark(role)
        elif takes and takes[0] == "series":
            self.may(roles.SERIES)
            if self.next.kind == WORD:
                self.dotted(function, ())
        elif takes and self.next.text != ")" and depth < _DEEPEST:
            self.expression(of="", depth=depth + 1)
            while self.sign(","):
                self.expression(of="", depth=depth + 1)
        self.need(")")


def unquoted(text: str) -> str:
    """What a string says."""
    body = text[1:-1] if len(text) > 1 and text.endswith('"') else text[1:]
    return body.replace('\\"', '"').replace("\\\\", "\\") if "\\" in body else body


def _name_of(piece: Piece) -> str:
    return unquoted(piece.text) if piece.kind == STRING else piece.text
