"""Expressions with every name settled: the form that guards and values are compared, run and solved in.

`settle` makes terms from the syntax tree; `code` turns them into closures, `order` compares guards by them, `steps`
solves them for the times at which they change. A `let` is replaced by what it stands for, `with` settings included,
so two guards that say the same have equal terms.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kvpolicy.policy.model import EventPattern

COMPARISONS = ("=", "!=", "<", "<=", ">", ">=")
OPPOSITE = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
MIRRORED = {"=": "=", "!=": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
# Functions whose answer drifts with time alone; `idle` and `age` grow second by second, the rest in no simple way.
LINEAR_IN_TIME = frozenset({"idle", "age"})
DRIFTING = frozenset({"next_use", "reuse_probability", "return_probability", "hit_density", "eta"})


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal in base units (seconds, tokens, bytes, fraction, count), a truth value, or a string."""

    value: float | bool | str


@dataclass(frozen=True, slots=True)
class Read:
    """A call of a function of the state. `argument`: None, a series, a kind, a tier or an EventPattern; `within`:
    the term of a duration."""

    function: str
    argument: str | EventPattern | None = None
    within: Term | None = None


@dataclass(frozen=True, slots=True)
class Apply:
    """An operator or one of `min max clamp log2` over terms; `neg` is the unary minus."""

    operator: str
    operands: tuple[Term, ...]


Term = Constant | Read | Apply


def reads(term: Term) -> Iterator[Read]:
    """Every function call within a term."""
    if isinstance(term, Read):
        yield term
        if term.within is not None:
            yield from reads(term.within)
    elif isinstance(term, Apply):
        for operand in term.operands:
            yield from reads(operand)


def size(term: Term, most: int) -> int:
    """How many parts a term has; counting stops beyond `most`."""
    count, waiting = 0, [term]
    while waiting and count <= most:
        part = waiting.pop()
        count += 1
        if isinstance(part, Apply):
            waiting += part.operands
        elif isinstance(part, Read) and part.within is not None:
            waiting.append(part.within)
    return count


def negation(term: Term) -> Term:
    """The term that holds exactly where `term`, which has data, does not."""
    if isinstance(term, Constant):
        return Constant(not term.value)
    if isinstance(term, Apply):
        if term.operator == "not":
            return normal(term.operands[0])
        if term.operator in OPPOSITE:
            return normal(Apply(OPPOSITE[term.operator], term.operands))
        if term.operator in ("and", "or"):
            other = "or" if term.operator == "and" else "and"
            return normal(Apply(other, tuple(negation(o) for o in term.operands)))
    return Apply("not", (term,))


def normal(term: Term) -> Term:
    """A guard in one of its equal spellings: negations inward, `>` turned into `<`, `and`/`or` flat and in order."""
    if not isinstance(term, Apply):
        return term
    if term.operator == "not":
        return negation(term.operands[0])
    if term.operator in (">", ">="):
        return Apply(MIRRORED[term.operator], term.operands[::-1])
    if term.operator in ("=", "!="):
        return Apply(term.operator, tuple(sorted(term.operands, key=repr)))
    if term.operator in ("and", "or"):
        parts: dict[Term, None] = {}
        for operand in map(normal, term.operands):
            same = isinstance(operand, Apply) and operand.operator == term.operator
            parts.update(dict.fromkeys(operand.operands if same and isinstance(operand, Apply) else (operand,)))
        flat = tuple(sorted(parts, key=repr))
        return flat[0] if len(flat) == 1 else Apply(term.operator, flat)
    return term


def parts(term: Term, operator: str) -> frozenset[Term]:
    """The members of a conjunction (`and`) or disjunction (`or`) in normal form; of anything else, itself."""
    if isinstance(term, Apply) and term.operator == operator:
        return frozenset(term.operands)
    return frozenset((term,))
