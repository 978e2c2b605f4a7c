"""A fault that has no sentence of its own: what could have stood there, what stands there, what to write instead.

`wording` comes here last. The parser names what it accepts by its grammar; these functions put that in the author's
words, the few that help most.
"""

from __future__ import annotations

from kvpolicy import words
from kvpolicy.faults import Diagnostic
from kvpolicy.language import codes
from kvpolicy.language.met import Fault, Piece

HARD = frozenset((*words.STATEMENT_WORDS, *words.CLAUSE_WORDS, *words.TEST_WORDS))
_SYMBOLS = {
    "ARROW": "->", "COMMA": ",", "COLON": ":", "DOT": ".", "EQ": "=", "LBRACE": "{", "RBRACE": "}", "LSQB": "[",
    "RSQB": "]", "LPAR": "(", "RPAR": ")",
}  # fmt: skip
_VALUE_TERMINALS = {"QUANTITY", "LPAR", "MINUS"}


def expected(fault: Fault, before: list[Piece]) -> Diagnostic:
    """`expected A or B after X, found Y`. before: the words in front, last first."""
    place = fault.place(fault.start, max(1, len(str(fault.token))))
    found = _short(str(fault.token))
    after = f" after '{_short(before[0].text)}'" if before else ""
    return codes.SYNTAX.at(place, f"expected {listed(fault)}{after}, found '{found}'", fix=instead(fault, before))


def listed(fault: Fault) -> str:
    """What could have stood there, shortest telling form."""
    accepted = fault.accepted
    if "COLON" in accepted and fault.block == "body":
        return "':'"
    if "POLICY" in accepted and "QUANTITY" not in accepted and "LBRACE" not in accepted:
        return "a rule or a statement"
    names: list[str] = []
    if accepted >= _VALUE_TERMINALS:
        names.append("a value")
        accepted -= {"QUANTITY", "LPAR", "MINUS", "NAME", "STRING", "WORKFLOW", "NOT", "HOLD", "AT"}
    elif "LSQB" in accepted and "NAME" in accepted and "RBRACE" not in accepted and fault.block != "body":
        names.append("a span kind" if "EQ" not in accepted else "a name")
        accepted -= {"LSQB", "NAME", "LABEL"}
    elif "NAME" in accepted or "WORD" in accepted or "STRING" in accepted:
        if fault.block in {"body"} and "RBRACE" in accepted:
            names.append("a property")
        elif accepted & {"NAME", "WORD"}:
            names.append("a name")
        else:
            names.append('a "string"')
    if "QUANTITY" in accepted and "a value" not in names:
        names.append("a number")
    if "INT" in accepted:
        names.append("a whole number")
    symbols = [
        f"'{_SYMBOLS[name]}'"
        for name in ("COLON", "EQ", "COMMA", "LBRACE", "RBRACE", "LSQB", "RSQB", "LPAR", "RPAR", "ARROW")
        if name in accepted
    ]
    keywords = sorted(
        f"`{name.lower()}`" for name in accepted if name.lower() in HARD | {"after", "fixed", "for", "hold"}
    )
    operators = {"PLUS", "STAR"} <= fault.accepted
    if operators:  # after a complete value nearly everything may follow; name what ends it
        keywords = [word for word in keywords if word in {"`of`", "`for`"}]
        symbols = [sign for sign in symbols if sign in {"'{'", "'}'", "']'", "')'", "','"}]
    names += symbols + keywords
    if not names:
        names = ["an operator" if operators else "something else"]
    names = names[:5]
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " or " + names[-1]


def instead(fault: Fault, before: list[Piece] | None = None) -> str:
    """What to write instead."""
    accepted = fault.accepted
    last = before[0].text if before else ""
    if "COLON" in accepted and fault.block == "body" and last:
        return f"write `{last}: …`"
    if accepted >= _VALUE_TERMINALS:
        return "write a value there, such as 80, 30s or yes"
    if "RPAR" in accepted or "RSQB" in accepted:
        return f"write `{')' if 'RPAR' in accepted else ']'}` there"
    if {"PLUS", "STAR"} <= accepted:
        return "remove it, or write an operator between the two values"
    if fault.block == "body" and "NAME" in accepted:
        return "write a property, such as `priority: 40`"
    for name in ("EQ", "ARROW", "LBRACE"):
        if name in accepted:
            return f"write `{_SYMBOLS[name]}` there"
    if "POLICY" in accepted:
        return "start a rule, such as `turn { priority: 40 }`, or a statement, such as `let` or `layer`"
    if fault.block == "test" and "EXPECT" in accepted:
        return "write a step there: `given`, `assume`, `at`, `then` or `expect`"
    if accepted & {"AT", "MOST", "LEAST"}:
        return "write `at most …` or `at least …`"
    if "NAME" in accepted or "WORD" in accepted:
        return "write a name there"
    return "write a text in double quotes there" if "STRING" in accepted else "write it there"


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "…"
