"""Names from tokens: what is given a name, what is called by one, and words that cannot be names.

The second of the layers that make up the transformer of `build`.
"""

from __future__ import annotations

from lark import Token

from kvpolicy import words
from kvpolicy.faults import Diagnostic, Place
from kvpolicy.language import codes
from kvpolicy.language.build_expressions import Children, ExpressionBuilder, unquote


class NameBuilder(ExpressionBuilder):
    """Callbacks of names."""

    def name(self, children: Children) -> tuple[str, Place]:
        token = children[0]
        return unquote(token) if token.type == "STRING" else str(token), self.place(token)

    def defined(self, token: Token, quotable: bool = True) -> str:
        """The name that `token` gives to something; a reserved word is told."""
        if token.type in {"STRING", "LABEL"}:
            return unquote(token)
        self._refuse_reserved(str(token), self.place(token), quotable)
        return str(token)

    def _named(self, pair: tuple[str, Place]) -> str:
        """A name that is given to something; in quotes it may be any word, and is longer on the page than itself."""
        name, place = pair
        if place.end_column - place.column == len(name) and place.end_line == place.line:
            self._refuse_reserved(name, place)
        return name

    def _refuse_reserved(self, name: str, place: Place, quotable: bool = True) -> None:
        if name in words.RESERVED:
            self.faults.append(reserved(name, place, quotable))

    def path(self, children: Children) -> tuple[tuple[str, ...], Place]:
        pairs = [child for child in children if not isinstance(child, Token)]
        return tuple(name for name, _ in pairs), self._to(pairs[0][1], pairs[-1][1])

    def label(self, children: Children) -> tuple[str, Place]:
        return self.defined(children[0]), self.place(children[0])


def reserved(name: str, place: Place, quotable: bool = True) -> Diagnostic:
    """The diagnostic of a reserved word used as a name. quotable: whether a string may stand there instead."""
    fix = f'write another name, or "{name}"' if quotable else "write another name"
    return codes.RESERVED_WORD.at(place, f"'{name}' is a word of the language and cannot be a name", fix=fix)
