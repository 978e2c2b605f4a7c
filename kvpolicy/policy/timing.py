"""Terms whose value time alone can change, made ready to be solved for when it does: a watcher a term.

A watcher notes crossings with a `steps.Solver` and gives the line that its term runs on, where there is one. Made once,
with the guard or value it belongs to, for a policy of thousands of rules is solved for every span. What cannot cross
anything is not read: a term of functions that drift asks to be looked at again, and that is all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kvpolicy.policy.code import code
from kvpolicy.policy.terms import COMPARISONS, DRIFTING, LINEAR_IN_TIME, Apply, Read, Term, reads

if TYPE_CHECKING:
    from kvpolicy.policy.steps import Solver

Line = tuple[float, float]  # value now, change per second
Watcher = Callable[["Solver"], "Line | None"]
_TIMED = LINEAR_IN_TIME | DRIFTING
_TRUTHS = frozenset({*COMPARISONS, "and", "or", "not"})  # what these give is on no line


def watcher(term: Term) -> Watcher | None:
    """Notes when a guard or value may change; None where time alone changes nothing."""
    return _watcher(term, _Functions())


class _Functions(dict[int, frozenset[str]]):
    """The functions that each part of one term reads, by its address: each is looked through once."""

    def of(self, term: Term) -> frozenset[str]:
        found = self.get(id(term))
        if found is None:
            parts = term.operands if isinstance(term, Apply) else ()
            own = () if parts else [read.function for read in reads(term)]
            found = self[id(term)] = frozenset(own).union(*map(self.of, parts))
        return found


def _watcher(term: Term, functions: _Functions) -> Watcher | None:
    if functions.of(term) & LINEAR_IN_TIME:
        return _part(term, functions)
    return _looks if functions.of(term) & DRIFTING else None


def _looks(solver: Solver) -> None:
    solver.look_again()


def _part(term: Term, functions: _Functions) -> Watcher:
    if not functions.of(term) & _TIMED:
        return _still(term)
    if isinstance(term, Read):
        function = term.function
        return (lambda solver: solver.growing(function)) if function in LINEAR_IN_TIME else _looks
    assert isinstance(term, Apply)
    if term.operator in _TRUTHS:
        return _truth(term, functions) if functions.of(term) & LINEAR_IN_TIME else _looks
    return _amount(term, tuple([_part(operand, functions) for operand in term.operands]))


def _still(term: Term) -> Watcher:
    """A value that stands where it is."""
    run = code(term)

    def line(solver: Solver) -> Line | None:
        found = run(solver.subject, solver.state)
        return None if found is None or isinstance(found, str) else (float(found), 0.0)

    return line


def _truth(term: Apply, functions: _Functions) -> Watcher:
    if term.operator in COMPARISONS:
        operator, (left, right) = term.operator, [_part(operand, functions) for operand in term.operands]

        def compare(solver: Solver) -> None:
            solver.crossing(operator, left(solver), right(solver))

        return compare
    inner = [found for operand in term.operands if (found := _watcher(operand, functions)) is not None]

    def each(solver: Solver) -> None:
        for watch in inner:
            watch(solver)

    return each


def _amount(term: Apply, inner: tuple[Watcher, ...]) -> Watcher:
    operator = term.operator
    if operator == "else":
        first, (left, right) = code(term.operands[0]), inner

        def other(solver: Solver) -> Line | None:
            known, unknown = left(solver), right(solver)
            return unknown if first(solver.subject, solver.state) is None else known

        return other
    if operator == "log2":

        def bent(solver: Solver) -> None:
            line = inner[0](solver)
            if line is not None and line[1] != 0:
                solver.look_again()

        return bent
    if operator in ("min", "max", "clamp"):

        def chosen(solver: Solver) -> Line | None:
            lines = _all_known(inner, solver)
            present = _chosen(operator, lines) if lines else None
            for line in dict.fromkeys(lines):
                if present is not None and line[0] != present[0]:
                    solver.crossing("=", present, line)
            return present

        return chosen

    def worked_out(solver: Solver) -> Line | None:
        lines = _all_known(inner, solver)
        return _arithmetic(operator, lines) if lines else None

    return worked_out


def _all_known(inner: tuple[Watcher, ...], solver: Solver) -> list[Line]:
    """The lines of all operands, none where one of them has none."""
    lines = [watch(solver) for watch in inner]
    known = [line for line in lines if line is not None]
    return known if len(known) == len(lines) else []


def _chosen(operator: str, lines: list[Line]) -> Line:
    """The line that the least, the greatest or the clamped runs on from now; of equal ones that which will be it."""
    if operator != "clamp":
        return min(lines) if operator == "min" else max(lines)
    value, low, high = lines
    return max(low, min(value, high))


def _arithmetic(operator: str, lines: list[Line]) -> Line | None:
    """The line of a sum, difference, product or ratio; None where it is no line."""
    if operator == "neg":
        return -lines[0][0], -lines[0][1]
    (a, up), (b, across) = lines
    if operator == "+":
        return a + b, up + across
    if operator == "-":
        return a - b, up - across
    if operator == "*" and (up == 0 or across == 0):
        return a * b, up * b + across * a
    if operator == "/" and across == 0 and b != 0:
        return a / b, up / b
    return None
