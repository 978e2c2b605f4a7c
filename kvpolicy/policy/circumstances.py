"""What a rule's `when` came to in one state: the values of its functions, and how they stand to what it compares with.

Made for `explain`, from the same terms, read in the same order and no further than the rule itself asks, so that
nothing is read that did not matter: `reuse_probability() is 0.46, not < 0.2`.
"""

from __future__ import annotations

from kvpolicy import units, words
from kvpolicy.policy.code import Value, code
from kvpolicy.policy.model import NEVER, EventPattern, State, Subject
from kvpolicy.policy.terms import COMPARISONS, MIRRORED, Apply, Constant, Read, Term

_JUNCTIONS = ("and", "or")
_BINDS = {"or": 1, "and": 2, "+": 5, "-": 5, "*": 6, "/": 6, "else": 7}
_LIKE = frozenset({"else", "+", "-", "min", "max", "clamp", "neg"})  # their value is of the kind of their operands


def circumstances(condition: Term, subject: Subject, state: State) -> tuple[str, ...]:
    """One phrase for each comparison that decided: of an `and` that fails the part that does, of an `or` that holds the
    part that does, else all."""
    return _of(condition, subject, state)[1]


def _of(term: Term, subject: Subject, state: State) -> tuple[Value, tuple[str, ...]]:
    if isinstance(term, Apply) and term.operator in _JUNCTIONS:
        decisive, missing = term.operator == "or", False
        told: tuple[str, ...] = ()
        for operand in term.operands:
            value, phrases = _of(operand, subject, state)
            if value is not None and bool(value) is decisive:
                return decisive, phrases
            missing, told = missing or value is None, (*told, *phrases)
        return None if missing else not decisive, told
    if isinstance(term, Apply) and term.operator in COMPARISONS:
        return _comparison(term, subject, state)
    value = code(term)(subject, state)
    return value, (f"{written(term)} is {_shown(value, None)}",)


def _comparison(term: Apply, subject: Subject, state: State) -> tuple[Value, tuple[str, ...]]:
    operator, (left, right) = term.operator, term.operands
    if isinstance(left, Constant) and not isinstance(right, Constant):
        operator, left, right = MIRRORED[operator], right, left
    kind = _kind(left) or _kind(right)
    first, phrase = _side(left, kind, subject, state)
    if first is None:
        return None, (phrase,)
    if isinstance(right, Constant):
        second = right.value
        beside = _shown(second, kind)
    else:
        found = code(right)(subject, state)
        if found is None:
            return None, (f"{written(right, kind)} has no data",)
        second, beside = found, f"{written(right, kind)}, which is {_shown(found, kind)}"
    compared = Apply(operator, (Constant(first), Constant(second)))
    holds = code(compared)(subject, state) is True
    return holds, (f"{phrase}, {'' if holds else 'not '}{operator} {beside}",)


def _side(term: Term, kind: str | None, subject: Subject, state: State) -> tuple[Value, str]:
    """A side's value, and where it comes from: of an `else` the operand that had data."""
    if isinstance(term, Apply) and term.operator == "else":
        first, other = term.operands
        value, phrase = _side(first, kind, subject, state)
        if value is not None:
            return value, phrase
        if isinstance(other, Constant):
            return other.value, f"{phrase}, so it counts as {_shown(other.value, kind)}"
        value, beside = _side(other, kind, subject, state)
        return value, f"{phrase}, and {beside}"
    value = code(term)(subject, state)
    return value, f"{written(term, kind)} " + ("has no data" if value is None else f"is {_shown(value, kind)}")


def _kind(term: Term) -> str | None:
    """`duration`, `probability`, `bytes`, `int` …: in which words a term's value is shown; None where nothing tells."""
    if isinstance(term, Read):
        return words.FUNCTIONS[term.function][1]
    if isinstance(term, Apply) and term.operator in _LIKE:
        return next((kind for operand in term.operands if (kind := _kind(operand)) is not None), None)
    if isinstance(term, Apply) and term.operator == "*":
        kinds = [kind for operand in term.operands if (kind := _kind(operand)) is not None]
        return kinds[0] if len(kinds) == 1 and kinds[0] in ("duration", "bytes") else None
    return None


def _shown(value: Value, kind: str | None) -> str:
    if value is None:
        return "without data"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if value == NEVER:
        return "never"
    if kind == "duration" and abs(value) != NEVER:
        return units.format_duration(value)
    if kind == "bytes" and abs(value) != NEVER:
        return units.format_bytes(value)
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"


def written(term: Term, kind: str | None = None, least: int = 0) -> str:
    """A term in the language's notation. kind: in what words its constants stand."""
    if isinstance(term, Constant):
        return _shown(term.value, kind)
    if isinstance(term, Read):
        argument = term.argument.name if isinstance(term.argument, EventPattern) else term.argument
        if term.within is not None:
            return f"{term.function}(within {written(term.within, 'duration')})"
        return f"{term.function}({argument or ''})"
    if term.operator in ("not", "neg"):
        return f"{'not ' if term.operator == 'not' else '-'}{written(term.operands[0], kind, 8)}"
    binds = _BINDS.get(term.operator, 4)
    if term.operator in _BINDS or term.operator in COMPARISONS:
        inner = kind if term.operator in _LIKE else None
        text = f" {term.operator} ".join(written(operand, inner, binds) for operand in term.operands)
        return f"({text})" if binds < least else text
    return f"{term.operator}({', '.join(written(operand, kind) for operand in term.operands)})"
